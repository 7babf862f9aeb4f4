"""``stepmill run``: plays an env and says how fast it was and what the episodes gave."""

from __future__ import annotations

from typing import Any

import click
import numpy as np
from rich.console import Console

import stepmill
from stepmill.tools.cli.options import json_option, policy_option, pool_arguments, pool_options, target
from stepmill.tools.cli.play import Count, play
from stepmill.tools.cli.policy import Policy, load_policy
from stepmill.tools.cli.terminal import Terminal, new_table, short, until_interrupted

__all__ = ["command"]


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
    act = load_policy(policy)
    count = Count()
    with stepmill.make(target, **pool_arguments(options)) as pool, until_interrupted() as ending:
        backend = pool.backend
        with terminal.progress(name, steps) as bar:
            for batch in play(pool, Policy(act, pool, options["seed"])):
                before = count.steps
                count.add(batch)
                bar.add(count.steps - before)
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


def _draw(out: Console, document: dict[str, Any], count: Count) -> None:
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
