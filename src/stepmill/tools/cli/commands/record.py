"""``stepmill record``: episodes as videos."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from stepmill import _native
from stepmill.envs.video_file import VideoFile, frame_problem, frames_per_second
from stepmill.errors import ConfigError, EnvError
from stepmill.hosts.rollout.steps import StepBatch
from stepmill.system.optional import require
from stepmill.tools.cli.options import folder_option, json_option, policy_option, seed_option, set_option, target
from stepmill.tools.cli.policy import RandomActions, load_policy
from stepmill.tools.cli.target import make_drawn
from stepmill.tools.cli.terminal import Terminal, new_table, until_interrupted
from stepmill.views.gymnasium import GymnasiumPool

_USER = "stepmill record"
_MOST_PLACES = 16  # in a grid: more pictures would be small. Further episodes follow in these places.
_GAP = 4  # pixels between pictures
_DIMMED = 2  # a picture that stands still has half of its brightness


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
    chosen = load_policy(policy)
    stem = "grid_" if grid else "episode_"
    _check_free(folder, stem)
    count = min(episodes, num_envs or (_MOST_PLACES if grid else _native.available_cores()))
    arguments: dict[str, Any] = {"num_envs": count, "seed": seed, "max_episode_steps": max_episode_steps}
    with make_drawn(target, {**arguments, **config}) as pool:
        fps = frames_per_second(pool.metadata, name)
        videos = _Videos(folder, stem, fps, count if grid else 0)
        acting = chosen or RandomActions(pool.spec.action_space, seed)
        recording = _Recording(pool, videos, episodes)
        try:
            with until_interrupted() as ending, terminal.progress(name, episodes, "episodes") as bar:
                for done in recording.record(pool.play(acting, seed=seed)):
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
    terminal.result(document, lambda out: _draw(out, document))
    return ending.code


def _check_free(folder: Path, stem: str) -> None:
    """Says so if there are such videos already: the new ones would be numbered after them."""
    for path in sorted(folder.glob(f"{stem}*.mp4")):
        raise ConfigError(f"-o {folder}: expected a folder without earlier videos, found {path.name}")


def _draw(out: Console, document: dict[str, Any]) -> None:
    table = new_table(out, show_header=False, title=f"{document['id']}, recorded")
    for path in document["videos"]:
        table.add_row("video", path)
    returns = [one for one in document["returns"] if one is not None]
    table.add_row("episodes", f"{len(returns):,}")
    table.add_row("frames", f"{document['frames']:,}")
    if returns:
        table.add_row("mean return", f"{np.mean(returns):.1f}")
    out.print(table)


# ---- playing -----------------------------------------------------------------------------------------


class _Recording:
    """Plays episodes and draws every step of them. Env i plays episode i, then i + n and so on, of n envs.

    Args:
        pool: A sync pool whose envs draw pictures.
        videos: Where the pictures go.
        episodes: How many episodes to record.
    """

    def __init__(self, pool: GymnasiumPool, videos: _Videos, episodes: int) -> None:
        self.frames = 0
        self.returns: dict[int, float] = {}  # by episode
        self._pool = pool
        self._videos = videos
        self._episodes = episodes
        self._playing = np.arange(pool.num_envs)  # the episode that each env plays

    def record(self, batches: Iterator[StepBatch]) -> Iterator[int]:
        """Plays until all are recorded; yields after every step how many episodes ended with it."""
        for batch in batches:
            frames = self._pictures()
            self._videos.append(frames)
            self.frames += len(frames)
            ended = [
                env_id for env_id in np.flatnonzero(batch.ended).tolist() if self._playing[env_id] < self._episodes
            ]
            for env_id in ended:
                episode = int(self._playing[env_id])
                self.returns[episode] = float(batch.info["episode_return"][env_id])
                self._videos.end(episode)
                self._playing[env_id] += self._pool.num_envs
            yield len(ended)
            if len(self.returns) == self._episodes:
                return

    def _pictures(self) -> dict[int, np.ndarray]:
        """The pictures of the episodes that are being recorded."""
        envs = np.flatnonzero(self._playing < self._episodes).tolist()
        try:
            frames = self._pool.render(envs)
        except EnvError as error:
            if isinstance(error.__cause__, NotImplementedError):  # what gymnasium.Env.render raises
                raise EnvError(f"{_USER}: the env has no render(), so there are no pictures", phase="render") from None
            raise
        for env_id, frame in zip(envs, frames, strict=True):
            if (problem := frame_problem(frame, None)) is not None:
                raise EnvError(f"{_USER}: env {env_id}: {problem}", env_id=env_id, phase="render")
        return dict(zip(self._playing[envs].tolist(), frames, strict=True))


# ---- videos ------------------------------------------------------------------------------------------


class _Videos:
    """One file for each episode, ``episode_0000.mp4`` and so on; or one with a place for each env, ``grid_0000.mp4``.

    Args:
        folder: Where the files are.
        stem: How their names begin.
        fps: Pictures per second.
        places: How many pictures the grid has; 0: no grid. In a grid, an env without another episode stands still.
    """

    def __init__(self, folder: Path, stem: str, fps: Fraction, places: int) -> None:
        self.paths: list[Path] = []
        self._folder, self._stem, self._fps = folder, stem, fps
        self._open: dict[int, VideoFile] = {}  # by episode
        self._grid: Grid | None = None
        self._last: list[np.ndarray | None] = [None] * places  # pictures in the places of the grid

    def append(self, frames: Mapping[int, np.ndarray]) -> None:
        """Adds the pictures of one step, by episode."""
        if self._last:
            frames = {0: self._in_grid(frames)}
        for number, frame in frames.items():
            if number not in self._open:
                size = frame.shape[:2]
                self._open[number] = VideoFile(self._folder, self._stem, number, size, self._fps, user=_USER)
            _check_size(frame, self._open[number].size)
            self._open[number].append(frame)

    def _in_grid(self, frames: Mapping[int, np.ndarray]) -> np.ndarray:
        if self._grid is None:
            self._grid = Grid(len(self._last), next(iter(frames.values())).shape[:2])
        still = [True] * len(self._last)
        for episode, frame in frames.items():
            _check_size(frame, self._grid.picture_size)
            place = episode % len(self._last)
            self._last[place], still[place] = frame, False
        return self._grid.draw(self._last, still)

    def end(self, episode: int) -> None:
        """Says that an episode has ended; in a grid, the next one follows in its place."""
        if not self._last:
            self._finish(episode)

    def finish(self) -> None:
        """Completes what is being written."""
        while self._open:
            self._finish(next(iter(self._open)))

    def _finish(self, number: int) -> None:
        video = self._open.pop(number)
        video.finish()
        if video.path.exists():  # it is dropped if nobody made a step
            self.paths.append(video.path)


def _check_size(frame: np.ndarray, size: tuple[int, ...]) -> None:
    if (problem := frame_problem(frame, size)) is not None:
        raise EnvError(f"{_USER}: {problem}", phase="render")


class Grid:
    """Puts pictures side by side, in about the shape of a screen.

    Args:
        count: How many.
        size: Height and width of each picture.
        most: Height and width that the grid may have. Pictures are made smaller by a whole number to fit into it.
    """

    def __init__(self, count: int, size: tuple[int, int], most: tuple[int, int] = (1080, 1920)) -> None:
        self.picture_size = height, width = size
        # As many columns as let the pictures be largest, with as few empty places as possible.
        self.columns = max(
            range(1, count + 1),
            key=lambda columns: (
                min(most[0] / (math.ceil(count / columns) * height), most[1] / (columns * width)),
                -math.ceil(count / columns) * columns,
            ),
        )
        self.rows = math.ceil(count / self.columns)
        needed = max(self.rows * (height + _GAP) / most[0], self.columns * (width + _GAP) / most[1])
        self._factor = max(1, math.ceil(needed))
        self._tile = max(1, height // self._factor), max(1, width // self._factor)
        self.size = self.rows * (self._tile[0] + _GAP) - _GAP, self.columns * (self._tile[1] + _GAP) - _GAP

    def draw(self, pictures: Sequence[np.ndarray | None], still: Sequence[bool]) -> np.ndarray:
        """The grid, uint8 of shape ``(*size, 3)``: black where there is no picture, darker where one stands still."""
        image = np.zeros((*self.size, 3), np.uint8)
        height, width = self._tile
        for place, (picture, is_still) in enumerate(zip(pictures, still, strict=True)):
            if picture is not None:
                row, column = divmod(place, self.columns)
                top, left = row * (height + _GAP), column * (width + _GAP)
                tile = self._smaller(picture)
                image[top : top + height, left : left + width] = tile // _DIMMED if is_still else tile
        return image

    def _smaller(self, picture: np.ndarray) -> np.ndarray:
        """The mean of each square of pixels."""
        factor, (height, width) = self._factor, self._tile
        if factor == 1:
            return picture
        squares = picture[: height * factor, : width * factor].reshape(height, factor, width, factor, 3)
        smaller: np.ndarray = squares.mean(axis=(1, 3)).astype(np.uint8)
        return smaller
