"""``stepmill verify``: whether native envs equal the official ones on this machine."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import click
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from stepmill.errors import MissingPackageError, UnsupportedError
from stepmill.registry.records import records
from stepmill.settings import Backend
from stepmill.tools.cli.options import complete_id, json_option, seed_option, set_option
from stepmill.tools.cli.program import FAILED
from stepmill.tools.cli.target import find_target
from stepmill.tools.cli.terminal import Ending, Terminal, json_value, new_table, until_interrupted
from stepmill.tools.verify.entry import Comparison, why_incomparable
from stepmill.tools.verify.results import Verification, Verifications

_WRONG_CALL = 2


@click.command("verify")
@click.argument("ids", nargs=-1, metavar="[ID]...", shell_complete=complete_id)
@click.option(
    "--steps", type=click.IntRange(min=1), default=10_000, show_default=True, help="Steps to compare, for each id."
)
@click.option("--num-envs", type=click.IntRange(min=1), default=8, show_default=True, help="Envs to play, for each id.")
@click.option("--backend", type=click.Choice(get_args(Backend)), default="auto", show_default=True)
@click.option("--reference", metavar="ID|MODULE:ENV", help="What to compare an env of your own with.")
@click.option("--max-episode-steps", type=click.IntRange(min=1), help="A time limit, for both.")
@seed_option
@set_option
@json_option
def command(
    ids: Sequence[str],
    steps: int,
    reference: str | None,
    config: dict[str, Any],
    terminal: Terminal,
    **arguments: Any,
) -> int:
    """Play native envs and the official ones side by side: equal, bit for bit, or where they first differ.

    Without an ID: all native ids whose official env is installed. Both get the same seeds and actions; observations,
    rewards, ends and infos are compared at every step and reset. The exit code is 1 if something differs.

    \b
    stepmill verify
    stepmill verify CartPole-v1 Ant-v5 --steps 100000
    stepmill verify Ant-v5 --set frame_skip=3
    stepmill verify maze.h --reference my_envs.py:Maze
    """
    for option, given in (("--set", config), ("--reference", reference)):
        if given and len(ids) != 1:
            raise click.UsageError(f"{option}: expected one ID that it is for, got {len(ids)}")
    twin = find_target(reference) if reference else None
    tasks = {id: find_target(id) for id in ids}
    is_own = len(ids) == 1 and not (reference is None and isinstance(tasks[ids[0]], str))
    chosen, skipped = (list(ids), {}) if is_own else _comparable(ids)
    results: list[Verification] = []
    with until_interrupted() as ending, terminal.progress("comparing", steps * len(chosen)) as bar:
        for id in chosen:
            comparison = Comparison(steps, arguments, config, functools.partial(bar.add, said=id), twin)
            # A single id is compared as the user wrote it: what is wrong with the call is said as an error.
            outcome = comparison.of(tasks[id]) if len(ids) == 1 else comparison.attempt(id)
            if isinstance(outcome, str):
                skipped[id] = outcome
            else:
                results.append(outcome)
    found = Verifications(tuple(results), skipped)
    terminal.result(_document(found, ending), lambda out: _draw(out, found, ending))
    return _code(found, ids, ending)


def _comparable(ids: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the ids that can be compared, and why the others cannot; an error if none of the ids given can."""
    chosen: list[str] = []
    errors: dict[str, Exception] = {}
    for id in dict.fromkeys(ids or sorted(one.id for one in records() if one.native is not None)):
        try:
            why = why_incomparable(id)
        except MissingPackageError as error:
            errors[id] = error
            continue
        if why is None:
            chosen.append(id)
        else:
            errors[id] = UnsupportedError(f"{id} {why}")
    if ids and not chosen:
        raise next(iter(errors.values()))
    return chosen, {id: str(error) for id, error in errors.items()}


def _code(found: Verifications, ids: Sequence[str], ending: Ending) -> int:
    if not all(found.results):
        return FAILED
    if ending.interrupted:
        return ending.code
    return _WRONG_CALL if ids and found.skipped else 0


def _document(found: Verifications, ending: Ending) -> dict[str, Any]:
    return {
        "results": [
            {
                **{name: value for name, value in vars(one).items() if name != "difference"},
                "equal": one.equal,
                "difference": one.difference and json_value(vars(one.difference)),
            }
            for one in found.results
        ],
        "skipped": found.skipped,
        "interrupted": ending.interrupted,
    }


# ---- what is shown ---------------------------------------------------------------------------------


def _draw(out: Console, found: Verifications, ending: Ending) -> None:
    table = new_table(out)
    for title in ("id", "", "steps", "episodes"):
        table.add_column(title, justify="right" if title in ("steps", "episodes") else "left", no_wrap=title != "")
    for one in found.results:
        word = Text("equal", style="green") if one.equal else Text("different", style="bold red")
        table.add_row(one.id, word, f"{one.steps:,}", f"{one.episodes:,}")
    if found.results:
        out.print(table)
    for one in found.results:
        if one.difference is not None:
            out.print(Text.assemble((one.id, "bold red"), f" differs {one.difference}"))
    _draw_skipped(out, found.skipped)
    different = sum(not one for one in found.results)
    counts = f"{len(found.results) - different} equal, {different} different, {len(found.skipped)} not compared"
    versions = {name: version for one in found.results for name, version in one.versions.items()}
    out.print(Text(f"{counts} ({', '.join(f'{name} {version}' for name, version in versions.items())})"))
    if ending.interrupted:
        out.print("Stopped before all were compared.")


def _draw_skipped(out: Console, skipped: Mapping[str, str]) -> None:
    """Ids with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for id, reason in skipped.items():
        by_reason.setdefault(reason.replace(f"{id} ", "", 1), []).append(id)
    for reason, ids in by_reason.items():
        out.print(Text.assemble(("not compared: ", "yellow"), ", ".join(ids)))
        out.print(Padding(Text(reason), (0, 0, 0, 2)))
