"""``make run``: steps one env for a few seconds, here and in Gymnasium, and prints both in a table.

Both get the same seeds and the same actions, so for an env that both have they play the same episodes.
Only ``step`` is timed; the progress line and the counting of episodes are left out of the clock.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import gymnasium
import numpy as np

import stepmill
from stepmill import _native
from stepmill.errors import StepmillError

try:
    from rich import box
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text
except ModuleNotFoundError as error:
    sys.exit(f"the demo draws with rich, which is not installed ({error}): pip install 'stepmill[cli]'")

SEED = 42
ACTION_BATCHES = 64
REFRESH_S = 0.1
COMPARED_STEPS = 2000
COMPARED_ENVS = 8  # at most
WIDE = 94  # columns of the whole progress line


class VectorEnv(Protocol):
    """What the demo needs from a pool and from Gymnasium's vector env."""

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]: ...
    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]: ...
    def close(self) -> None: ...


@dataclass
class Score:
    """What one library did in the given time."""

    name: str
    num_envs: int
    steps: int = 0
    seconds: float = 0.0
    episodes: int = 0
    return_sum: float = 0.0
    _running: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds if self.seconds else 0.0

    @property
    def mean_return(self) -> float | None:
        return self.return_sum / self.episodes if self.episodes else None

    def begin(self) -> None:
        """Notes that all envs were reset."""
        self._running = np.zeros(self.num_envs)

    def count(self, reward: np.ndarray, ended: np.ndarray) -> None:
        """Adds one step of every env. The row of a reset has reward 0, so it changes nothing."""
        self._running += reward
        if ended.any():
            self.episodes += int(np.count_nonzero(ended))
            self.return_sum += float(self._running[ended].sum())
            self._running[ended] = 0.0


def run(envs: VectorEnv, actions: Sequence[Any], score: Score, seconds: float, show: Callable[[Score], None]) -> None:
    """Steps until ``seconds`` of stepping are over, and shows the score now and then."""
    envs.reset(seed=SEED)
    score.begin()
    shown = 0.0
    calls = 0
    while score.seconds < seconds:
        action = actions[calls % len(actions)]
        start = time.perf_counter()
        _, reward, terminated, truncated, _ = envs.step(action)
        score.seconds += time.perf_counter() - start
        calls += 1
        score.steps += score.num_envs
        score.count(reward, terminated | truncated)
        if score.seconds - shown >= REFRESH_S:
            shown = score.seconds
            show(score)


def gymnasium_envs(env: str, num_envs: int) -> VectorEnv | None:
    """Gymnasium's own vector env with that id, or None if it has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an older version of an env is still that env
        try:
            envs: VectorEnv = gymnasium.make_vec(env, num_envs=num_envs, vectorization_mode="sync")
        except gymnasium.error.Error:
            return None
    return envs


# ---- what is shown ---------------------------------------------------------------------------------


class LiveLines:
    """The progress lines: one for each library, redrawn in place. Nothing if there is no terminal."""

    def __init__(self, console: Console, scores: Sequence[Score], seconds: float) -> None:
        self._console = console
        self._scores = scores
        self._seconds = seconds
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def show(self, _: Score | None = None) -> None:
        if self._live is not None:
            self._live.update(self._render(), refresh=True)

    def __enter__(self) -> LiveLines:
        if self._live is not None:
            self._live.start()
            self.show()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def _render(self) -> Table:
        wide = self._console.width >= WIDE
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column()
        for width in (15, 16, 18) if wide else (15,):
            grid.add_column(justify="right", min_width=width, no_wrap=True)
        for score in self._scores:
            name = Text(f" {score.name}", style="bold cyan" if score is self._scores[0] else "")
            bar = ProgressBar(total=1.0, completed=min(score.seconds / self._seconds, 1.0), width=20)
            cells = self._cells(score)
            grid.add_row(name, bar, *(cells if wide else cells[:1]))
        return grid

    @staticmethod
    def _cells(score: Score) -> list[str]:
        if not score.steps:
            return ["", "", ""]
        mean = "" if score.mean_return is None else f"mean return {score.mean_return:.1f}"
        return [f"{short(score.steps_per_second)} steps/s", f"{short(score.episodes)} episodes", mean]


def short(number: float) -> str:
    """Three digits and a letter: 24.1 M, 98.3 k."""
    for unit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= unit:
            value = number / unit
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{letter}"
    return f"{number:.0f}"


def result_table(scores: Sequence[Score], plain: bool) -> Table:
    table = Table(box=box.ASCII2 if plain else box.ROUNDED)
    table.add_column("")
    for name in ("steps/s", "episodes", "mean return"):
        table.add_column(name, justify="right")
    for score in scores:
        mean = "-" if score.mean_return is None else f"{score.mean_return:.2f}"
        style = "bold cyan" if score is scores[0] else ""
        table.add_row(score.name, f"{score.steps_per_second:,.0f}", f"{score.episodes:,}", mean, style=style)
    if len(scores) == 2:
        table.add_section()
        table.add_row("ratio", f"{scores[0].steps_per_second / scores[1].steps_per_second:,.1f}x", "", "")
    return table


def note(env: str, theirs: VectorEnv | None, compared: stepmill.Verification | None) -> str:
    if theirs is None:
        return f"Gymnasium has no {env}, so stepmill ran alone."
    if compared is None:
        return "stepmill ran Gymnasium's own env, so there is nothing to compare."
    if compared:
        envs = f"{compared.num_envs} env{'s' if compared.num_envs != 1 else ''}"
        return f"Same seeds and actions: {compared.steps:,} steps in {envs} equal Gymnasium's, bit for bit."
    return str(compared)


# ---- the program -----------------------------------------------------------------------------------


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m stepmill.cli.demo",
        description="Steps an env with random actions, in stepmill and in Gymnasium's vector env.",
    )
    parser.add_argument("--env", default="CartPole-v1", help="the env's id (default: %(default)s)")
    parser.add_argument("--num-envs", type=int, default=256, help="how many of them (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=3.0, help="stepping time of each (default: %(default)s)")
    options = parser.parse_args(arguments)
    if not 0 < options.seconds < float("inf"):
        parser.error(f"--seconds: expected more than 0, got {options.seconds}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console(highlight=False)
    try:
        ours = stepmill.make(options.env, num_envs=options.num_envs, seed=SEED)
    except StepmillError as error:
        Console(stderr=True, highlight=False).print(f"error: {error}", markup=False, soft_wrap=True)
        return 2
    theirs = gymnasium_envs(options.env, options.num_envs)
    try:
        return compare(console, options, ours, theirs)
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
    finally:
        ours.close()
        if theirs is not None:
            theirs.close()


def compare(console: Console, options: argparse.Namespace, ours: Any, theirs: VectorEnv | None) -> int:
    ours.action_space.seed(SEED)
    actions = [ours.action_space.sample() for _ in range(ACTION_BATCHES)]
    scores = [Score(f"stepmill {stepmill.__version__}", options.num_envs)]
    if theirs is not None:
        scores.append(Score(f"Gymnasium {gymnasium.__version__}", options.num_envs))
    cores = _native.available_cores()
    envs = f"{options.num_envs:,} env{'s' if options.num_envs != 1 else ''}"
    title = f"{options.env}, {envs}, random actions, {cores} core{'s' if cores != 1 else ''}"
    console.print(Text(f"\n{title}", style="bold"), soft_wrap=True)
    with LiveLines(console, scores, options.seconds) as lines:
        compared = None
        if theirs is not None and ours.is_native:
            count = min(options.num_envs, COMPARED_ENVS)
            compared = stepmill.verify(options.env, steps=COMPARED_STEPS, num_envs=count, seed=SEED)
        for envs_of_one, score in zip((ours, theirs), scores, strict=False):
            run(envs_of_one, actions, score, options.seconds, lines.show)
            lines.show()
    console.print(result_table(scores, plain=not console.is_terminal))
    text = note(options.env, theirs, compared)
    console.print(f"{text}\n", soft_wrap=not console.is_terminal, markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
