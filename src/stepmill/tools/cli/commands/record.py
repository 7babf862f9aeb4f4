"""``stepmill record``: episodes as videos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console

from stepmill import _native
from stepmill.errors import ConfigError
from stepmill.system.optional import require
from stepmill.tools.cli.drawn import make_drawn
from stepmill.tools.cli.options import folder_option, json_option, policy_option, seed_option, set_option, target
from stepmill.tools.cli.terminal import Terminal, new_table, until_interrupted

if TYPE_CHECKING:
    from stepmill.tools.cli.recording import Recording, Videos

__all__ = ["command"]

_MOST_PLACES = 16  # in a grid: more pictures would be small. Further episodes follow in these places.


@click.command("record")
@target
@click.option("--episodes", type=click.IntRange(min=1), default=1, show_default=True, help="How many episodes.")
@folder_option("The folder for the videos.", required=True)
@click.option("--grid", is_flag=True, help="One video with many envs side by side, instead of one per episode.")
@click.option("--num-envs", type=click.IntRange(min=1), help=f"How many play at once.  [grid: up to {_MOST_PLACES}]")
@click.option("--max-episode-steps", type=click.IntRange(min=1), help="Where an episode is cut off.")
@policy_option
@seed_option
@set_option
@json_option
def command(
    target: Any,
    name: str,
    episodes: int,
    folder: Path,
    grid: bool,
    num_envs: int | None,
    max_episode_steps: int | None,
    policy: str,
    seed: int,
    config: dict[str, Any],
    terminal: Terminal,
) -> int:
    """Record episodes as mp4 files: one per episode, or a grid of many envs in one.

    The same command gives the same episodes.

    \b
    stepmill record CartPole-v1 --episodes 3 -o videos
    stepmill record HalfCheetah-v5 --episodes 9 --grid -o videos --policy agent.py:act
    """
    require("imageio_ffmpeg", "imageio-ffmpeg", "video", "stepmill record")
    from stepmill.envs.video_file import frames_per_second
    from stepmill.tools.cli.policy import RandomActions, load_policy
    from stepmill.tools.cli.recording import Recording, VideoGrid, VideoPerEpisode

    chosen = load_policy(policy)
    _check_free(folder, VideoGrid.STEM if grid else VideoPerEpisode.STEM)
    count = min(episodes, num_envs or (_MOST_PLACES if grid else _native.available_cores()))
    arguments: dict[str, Any] = {"num_envs": count, "seed": seed, "max_episode_steps": max_episode_steps}
    with make_drawn(target, {**arguments, **config}) as pool:
        fps = frames_per_second(pool.metadata, name)
        videos: Videos = VideoGrid(folder, fps, count) if grid else VideoPerEpisode(folder, fps)
        acting = chosen or RandomActions(pool.spec.action_space, seed)
        recording = Recording(pool, acting, seed, videos, episodes)
        try:
            with until_interrupted() as ending, terminal.progress(name, episodes, "episodes") as bar:
                for done in recording.record():
                    bar.add(done, f"{recording.frames:,} frames")
        finally:
            videos.finish()
    document = {
        "id": name,
        "videos": [str(path) for path in sorted(videos.paths)],
        "frames": recording.frames,
        "returns": [recording.returns.get(episode) for episode in range(episodes)],
        "interrupted": ending.interrupted,
    }
    terminal.result(document, lambda out: _draw(out, name, videos, recording))
    return ending.code


def _check_free(folder: Path, stem: str) -> None:
    """Says so if there are such videos already: the new ones would be numbered after them."""
    for path in sorted(folder.glob(f"{stem}*.mp4")):
        raise ConfigError(f"-o {folder}: expected a folder without earlier videos, found {path.name}")


def _draw(out: Console, name: str, videos: Videos, recording: Recording) -> None:
    table = new_table(out, show_header=False, title=f"{name}, recorded")
    for path in sorted(videos.paths):
        table.add_row("video", str(path))
    returns = list(recording.returns.values())
    table.add_row("episodes", f"{len(returns):,}")
    table.add_row("frames", f"{recording.frames:,}")
    if returns:
        table.add_row("mean return", f"{np.mean(returns):.1f}")
    out.print(table)
