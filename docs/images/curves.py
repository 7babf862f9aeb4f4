"""Draws the learning curves of docs/examples.md: ``python -m docs.images.curves``. Needs matplotlib.

The curves come from ``docs/curves/EXAMPLE-SEED.jsonl``, which are logs of the examples (their ``--log``), thinned out:
``python -m docs.images.curves --keep build/curves/*.jsonl`` takes new ones, as `make examples` writes them.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchmarks.plots import THEMES, Theme, pyplot, themed
from matplotlib.axes import Axes

IMAGES = Path(__file__).resolve().parent
LOGS = IMAGES.parent / "curves"
MOST_LINES = 120  # of a log that is kept

Curve = tuple[np.ndarray, np.ndarray]  # steps, returns
Curves = dict[str, Curve]  # by seed


@dataclass(frozen=True)
class Example:
    """What its picture says."""

    title: str
    goal: float
    goal_label: str
    beside: str = ""  # the name of other logs, whose curves are drawn below, and what they are
    beside_label: str = ""
    y_label: str = "mean return"
    low: float | None = None  # where the axis begins
    is_apart: bool = False  # a line per seed, where trainings end at different times
    counted: str = ""  # another field of the logs, drawn on an axis of its own
    estimated: str = ""  # another field of these logs and of those beside: what a training believes its return to be


EXAMPLES = {
    "ppo": Example("ppo.py on CartPole-v1", 475, "solved", "ppo-gymnasium", "on Gymnasium's envs", low=0),
    "ppo_async": Example("ppo_async.py on CartPole-v1", 475, "solved", low=0),
    "sb3_ppo": Example("sb3_ppo.py on CartPole-v1", 475, "solved", low=0),
    "torchrl_ppo": Example("torchrl_ppo.py on CartPole-v1", 475, "solved", low=0),
    "managers_dqn": Example("managers_dqn.py on CartPole-v1", 400, "goal", low=0, is_apart=True),
    "ppo_mujoco": Example("ppo_mujoco.py on HalfCheetah-v5", 1500, "goal"),
    "ppo_atari": Example("ppo_atari.py on Pong-v5", 18, "goal"),
    "ppo_jax": Example("ppo_jax.py on Gymnax's CartPole-v1", 475, "solved", low=0),
    "ppo_cuda": Example("ppo_cuda.py on CartPole-v1", 475, "solved", low=0),
    "es_pendulum": Example("es_pendulum.py on Pendulum-v1", -250, "goal"),
    "ppo_own_env": Example(
        "ppo_own_env.py on envs that crash",
        0,
        "best possible",
        y_label="mean return, less the best possible",
        counted="failures",
    ),
    "text_game": Example(
        "text_game.py on a server that fails",
        2.55,
        "best possible",
        "text_game-zero",
        "failures count as 0",
        low=0,
        estimated="estimate",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, nargs="+", default=[], help="logs to take into docs/curves first")
    for path in parser.parse_args().keep:
        keep(path)
    for name, example in EXAMPLES.items():
        if example.estimated:
            draw_estimated(name, example)
        elif curves := read(name):
            beside = read(example.beside) if example.beside else {}
            if beside:  # means are compared, so both are of the same seeds
                curves, beside = ({seed: one[seed] for seed in curves.keys() & beside} for one in (curves, beside))
            counted = read(name, example.counted) if example.counted else {}
            draw(name, example, *(list(one.values()) for one in (curves, beside, counted)))


def keep(path: Path) -> None:
    """A copy with fewer lines and digits. The last line stays."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    every = math.ceil(len(lines) / MOST_LINES)
    kept = lines[(len(lines) - 1) % every :: every]
    text = "".join(json.dumps({key: _rounded(value) for key, value in line.items()}) + "\n" for line in kept)
    LOGS.mkdir(exist_ok=True)
    (LOGS / path.name).write_text(text, encoding="utf-8")


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.5g}")


def read(name: str, field: str = "return") -> Curves:
    """One curve per seed, without the time before the first episode ended."""
    curves: Curves = {}
    for path in sorted(LOGS.glob(f"{name}-*.jsonl")):
        if not (match := re.fullmatch(rf"{name}-(\d+)\.jsonl", path.name)):
            continue
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        points = np.array([(line["steps"], line[field]) for line in lines])
        steps, values = points[~np.isnan(points[:, 1])].T
        curves[match[1]] = steps, values
    return curves


def draw(name: str, example: Example, curves: list[Curve], beside: list[Curve], counted: list[Curve]) -> None:
    for theme in THEMES:
        with themed(theme):
            figure, axes = pyplot.subplots(figsize=(6.4, 3.3), layout="constrained")
            axes.set_title(example.title, loc="left", fontweight="bold", fontsize=12)
            colour = theme.envpool  # of what is not the return on stepmill's envs
            if beside:  # below and wider, so that both are seen where they are the same
                steps, mean, _, _ = summary(beside)
                axes.plot(steps, mean, color=colour, linewidth=7, alpha=0.5, solid_capstyle="round")
            (draw_apart if example.is_apart else draw_summary)(axes, curves, theme.stepmill)
            axes.axhline(example.goal, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
            finish(axes, example, theme, max(float(steps[-1]) for steps, _ in curves), len(curves))
            if beside:
                label(axes, "on stepmill's envs", theme.stepmill, 0)
                label(axes, f"{example.beside_label}: the same line", colour, 1)
            if counted:
                steps, mean, _, _ = summary(counted)
                right = axes.twinx()
                right.plot(steps, mean, color=colour, linewidth=1.6)
                right.set_ylim(bottom=0)
                right.grid(visible=False)
                right.set_ylabel(f"{example.counted} so far", color=colour)
            figure.savefig(IMAGES / f"curve-{name}-{theme.name}.png", dpi=150)
            pyplot.close(figure)


def draw_estimated(name: str, example: Example) -> None:
    """Two kinds of trainings: the return of their policies, and, dashed, what they take it for."""
    for theme in THEMES:
        with themed(theme):
            figure, axes = pyplot.subplots(figsize=(6.4, 3.8), layout="constrained")
            axes.set_title(example.title, loc="left", fontweight="bold", fontsize=12)
            axes.axhline(example.goal, color=theme.muted, linewidth=1, linestyle=(0, (4, 3)))
            kinds = (name, "failures are masked", theme.stepmill), (example.beside, example.beside_label, theme.envpool)
            last, row = 0.0, -3
            for logs, text, colour in kinds:
                curves = list(read(logs).values())
                steps, believed, _, _ = summary(list(read(logs, example.estimated).values()))
                draw_summary(axes, curves, colour)
                axes.plot(steps, believed, color=colour, linewidth=1.8, linestyle=(0, (2, 1)))
                label(axes, f"{text}: the real return", colour, row)
                label(axes, "dashed: what the training takes it for", colour, row + 1)
                last, row = max(last, *(float(steps[-1]) for steps, _ in curves)), row + 2
            finish(axes, example, theme, last, len(curves))
            axes.set_ylim(top=example.goal * 1.12)  # room for the words above the goal
            figure.savefig(IMAGES / f"curve-{name}-{theme.name}.png", dpi=150)
            pyplot.close(figure)


def draw_summary(axes: Axes, curves: list[Curve], colour: str) -> None:
    steps, mean, low, high = summary(curves)
    axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(steps, mean, color=colour, linewidth=2)


def draw_apart(axes: Axes, curves: list[Curve], colour: str) -> None:
    for curve in curves:
        axes.plot(*curve, color=colour, linewidth=1.6, alpha=0.7)
        axes.plot(curve[0][-1], curve[1][-1], "o", color=colour, markersize=7, clip_on=False)


def summary(curves: list[Curve]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Steps; mean, lowest and highest of all seeds."""
    steps = np.linspace(max(curve[0][0] for curve in curves), min(curve[0][-1] for curve in curves), 200)
    every = np.array([np.interp(steps, *curve) for curve in curves])
    return steps, every.mean(0), every.min(0), every.max(0)


def finish(axes: Axes, example: Example, theme: Theme, last: float, seeds: int) -> None:
    axes.set_xlim(0, last * 1.01)
    if example.low is not None:
        axes.set_ylim(bottom=example.low)
    axes.xaxis.set_major_formatter(lambda value, _: short(value))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    which = "a line per seed, until it is good enough" if example.is_apart else f"mean, worst and best of {seeds} seeds"
    axes.set_xlabel("steps of all envs" + (f"; {which}" if seeds > 1 else ""))
    axes.set_ylabel(example.y_label)
    axes.annotate(
        f"{example.goal_label}: {example.goal:,g}" if example.goal else example.goal_label,
        (last / 3 if example.counted else last / 100, example.goal),
        (0, -4 if example.counted else 4),
        textcoords="offset points",
        va="top" if example.counted else "bottom",
        fontsize=9,
        color=theme.muted,
    )


def short(steps: float) -> str:
    for unit, letter in ((1e6, " M"), (1e3, " k")):
        if steps >= unit:
            return f"{steps / unit:g}{letter}"
    return f"{steps:g}"


def label(axes: Axes, text: str, colour: str, row: int) -> None:
    axes.annotate(
        text,
        (0.98, 0.16 - 0.09 * row),
        xycoords="axes fraction",
        ha="right",
        fontsize=10,
        fontweight="bold",
        color=colour,
    )


if __name__ == "__main__":
    main()
