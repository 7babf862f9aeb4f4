"""``stepmill collect``: episodes as a data set of Minari."""

from __future__ import annotations

import warnings
from typing import Any

import click
from rich.console import Console

import stepmill
from stepmill.tools.cli.options import json_option, policy_option, pool_arguments, pool_options, target
from stepmill.tools.cli.policy import load_policy, random_by_row
from stepmill.tools.cli.program import FAILED
from stepmill.tools.cli.terminal import Terminal, new_table


@click.command("collect")
@target
@click.option("--episodes", type=click.IntRange(min=1), required=True, help="How many episodes.")
@click.option("-o", "--output", "dataset", required=True, metavar="NAME", help="Its id, such as cartpole/random-v0.")
@pool_options(num_envs=16)
@policy_option
@click.option("--author", help="In the metadata of the data set.")
@click.option("--description", help="In the metadata of the data set.")
@json_option
def command(
    target: Any,
    name: str,
    episodes: int,
    dataset: str,
    policy: str,
    author: str | None,
    description: str | None,
    terminal: Terminal,
    **options: Any,
) -> int:
    """Collect episodes as a data set of Minari.

    Which episodes it has follows from the seed alone: not from the backend, nor from how many envs play at once. After
    Ctrl-C, or any other end, the same command continues with the episodes that are missing.

    \b
    stepmill collect CartPole-v1 --episodes 100 -o cartpole/random-v0
    stepmill collect HalfCheetah-v5 --episodes 50 -o cheetah/expert-v0 --policy agent.py:act
    """
    from stepmill.interop.minari import collect  # says what to install
    from stepmill.interop.minari.store import path_of

    chosen = load_policy(policy)
    was_complete = path_of(dataset).exists()  # parts of one are elsewhere, and another of that name is an error
    with stepmill.make(target, **pool_arguments(options)) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of missing episodes: we say it below
        try:
            done = collect(
                pool,
                chosen or random_by_row(pool.spec.action_space),
                episodes,
                dataset,
                seed=options["seed"],
                progress=terminal.draws,
                algorithm_name=policy,
                author=author,
                description=description,
            )
        except KeyboardInterrupt as interrupt:
            for note in getattr(interrupt, "__notes__", ()):
                terminal.remark(note)
            raise
    if done.missing:
        terminal.remark(f"{len(done.missing)} of {episodes} episodes failed again and again, and are missing")
    document = {
        "id": name,
        "dataset": dataset,
        "path": str(done.dataset.spec.data_path),
        "episodes": done.dataset.total_episodes,
        "steps": done.dataset.total_steps,
        "missing": list(done.missing),
        "was_complete": was_complete,
    }
    terminal.result(document, lambda out: _draw(out, document))
    return FAILED if done.missing else 0


def _draw(out: Console, document: dict[str, Any]) -> None:
    found = "complete already" if document["was_complete"] else "collected"
    table = new_table(out, show_header=False, title=f"{document['id']}, {found}")
    for key in ("dataset", "path"):
        table.add_row(key, str(document[key]))
    for key in ("episodes", "steps"):
        table.add_row(key, f"{document[key]:,}")
    out.print(table)
    if document["was_complete"]:
        out.print("The data set was complete already, so nothing was played.", soft_wrap=True)
    out.print(f"minari.load_dataset({document['dataset']!r}) reads it.", soft_wrap=True)
