"""``stepmill run``: plays an env and says how fast it was and what the episodes gave."""

from __future__ import annotations

import time
from typing import Any

import click
import numpy as np
from rich.console import Console

import stepmill
from stepmill.hosts.rollout.steps import StepBatch
from stepmill.tools.cli.options import json_option, policy_option, pool_arguments, pool_options, target
from stepmill.tools.cli.policy import load_policy, play_on
from stepmill.tools.cli.terminal import Terminal, new_table, short, until_interrupted


@click.command("run")
@target
@pool_options(num_envs=64)
@click.option("--steps", type=click.IntRange(min=1), default=100_000, show_default=True, help="Steps of all envs.")
@policy_option
@json_option
def command(target: Any, name: str, steps: int, policy: str, terminal: Terminal, **options: Any) -> int:
    """Play an env with many copies at once: steps per second, returns and lengths of episodes.

    \b
    stepmill run CartPole-v1
    stepmill run Pong-v5 --num-envs 16 --steps 50000 --set frame_skip=2
    stepmill run my_envs.py:Maze --policy agent.py:act --backend process
    """
    chosen = load_policy(policy)
    with stepmill.make(target, **pool_arguments(options)) as pool, until_interrupted() as ending:
        count, backend = _Count(), pool.backend
        with terminal.progress(name, steps) as bar:
            batches = play_on(pool, chosen, options["seed"])
            begin = time.perf_counter()
            for batch in batches:
                bar.add(len(batch.env_ids))
                count.add(batch, time.perf_counter() - begin)
                if count.steps >= steps:
                    break
    document = {
        "id": name,
        "backend": backend,
        "num_envs": options["num_envs"],
        "policy": policy,
        "steps": count.steps,
        "steps_per_second": count.steps_per_second,
        "steps_per_second_with_policy": count.steps_per_second_with_policy,
        "episodes": len(count.returns),
        "return": _summary(count.returns),
        "length": _summary(count.lengths),
        "interrupted": ending.interrupted,
    }
    terminal.result(document, lambda out: _draw(out, document, count))
    return ending.code


class _Count:
    """What was played."""

    def __init__(self) -> None:
        self.steps = 0
        self.seconds = self.env_seconds = 0.0
        self.returns: list[float] = []
        self.lengths: list[int] = []

    def add(self, batch: StepBatch, seconds: float) -> None:
        """Counts a batch, after that time in all."""
        self.steps += len(batch.env_ids)
        self.seconds = seconds
        self.env_seconds += batch.seconds
        if (ended := batch.ended).any():
            self.returns += batch.info["episode_return"][ended].tolist()
            self.lengths += batch.info["episode_length"][ended].tolist()

    @property
    def steps_per_second(self) -> float:
        """The speed of the envs, without the policy."""
        return self.steps / self.env_seconds if self.env_seconds else 0.0

    @property
    def steps_per_second_with_policy(self) -> float:
        return self.steps / self.seconds if self.steps else 0.0


def _summary(values: list[Any]) -> dict[str, float] | None:
    if not values:
        return None
    with np.errstate(invalid="ignore"):  # of an infinite return: there is no deviation from it
        return {
            "mean": float(np.mean(values)),
            "std": float(np.std(values)),
            "min": float(np.min(values)),
            "max": float(np.max(values)),
        }


def _draw(out: Console, document: dict[str, Any], count: _Count) -> None:
    table = new_table(out, show_header=False, title=f"{document['id']}, {document['num_envs']:,} envs")
    table.add_row("backend", document["backend"])
    table.add_row("steps", f"{count.steps:,}")
    table.add_row("steps per second", short(count.steps_per_second))
    table.add_row("with the policy", short(count.steps_per_second_with_policy))
    table.add_row("episodes", f"{len(count.returns):,}")
    for name in ("return", "length"):
        if (one := document[name]) is not None:
            table.add_row(name, f"{one['mean']:.1f} ± {one['std']:.1f}, from {one['min']:.1f} to {one['max']:.1f}")
    out.print(table)
