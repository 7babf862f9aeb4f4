"""``stepmill list``: the ids that can be made here, by family, and what brings the others."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

import click
from rich.columns import Columns
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stepmill.registry.hints import ids_like
from stepmill.registry.listing import EnvList, MissingFamily, list_all_envs
from stepmill.registry.records import families, records, registered
from stepmill.registry.suites import suite_of
from stepmill.tools.cli.options import json_option
from stepmill.tools.cli.terminal import Terminal

_NATIVE = "native threads"
_DEVICE = "a device, as arrays of JAX"
_PROCESSES = "worker processes"
_BACKENDS = {_NATIVE: "thread", _DEVICE: "jax", _PROCESSES: "process"}
_SHOWN = 60  # ids of a family in a list of everything

Fits = Callable[[str], bool]


Groups = dict[tuple[str, str], list[str]]  # ids by family and by what they run on


@click.command("list")
@click.argument("pattern", required=False)
@click.option("--all", "everything", is_flag=True, help="On a terminal: every id of large families too.")
@click.option("--python", metavar="FOLDER", help="Another environment: the ids that can be made there.")
@json_option
def command(pattern: str | None, everything: bool, python: str | None, terminal: Terminal) -> int:
    """List the envs that can be made here, by family: where they run, and which extra brings the rest.

    PATTERN is a part of an id, a glob, or the name of a family; upper and lower case are the same. Without a terminal
    there is one id per line and nothing else.

    \b
    stepmill list
    stepmill list cheetah
    stepmill list 'Pong*-v5'
    stepmill list atari
    """
    with terminal.progress("looking into packages", None):  # which are imported: that may take seconds
        ids = list_all_envs(python)
    fits = _fits(pattern)
    groups = _groups(ids, fits, elsewhere=python is not None)
    missing = _missing(ids, fits)
    if pattern is not None and not groups:
        _refuse(pattern, ids, missing)
    whole = everything or pattern is not None
    terminal.result(_document(groups, missing), lambda out: _draw(out, groups, missing, whole))
    return 0


def _fits(pattern: str | None) -> Fits:
    if pattern is None:
        return lambda text: True
    wanted = pattern.lower()
    if any(sign in pattern for sign in "*?["):
        return lambda text: fnmatch.fnmatchcase(text.lower(), wanted)
    return lambda text: wanted in text.lower()


def _groups(ids: EnvList, fits: Fits, *, elsewhere: bool) -> Groups:
    """What fits. Other interpreters run every env in worker processes."""
    groups: Groups = {}
    for family, members in ids.families.items():
        chosen = members if fits(family) else [*filter(fits, members)]
        places = {id: _PROCESSES if elsewhere else _place_of(id) for id in chosen}
        for runs_on in _BACKENDS:
            own = [id for id in chosen if places[id] == runs_on]
            if own:
                groups[family, runs_on] = own
    return groups


def _place_of(id: str) -> str:
    if suite_of(id) is not None:
        return _DEVICE
    record = registered(id)
    return _NATIVE if record is not None and record.native is not None else _PROCESSES


def _missing(ids: EnvList, fits: Fits) -> dict[str, MissingFamily]:
    """By extra, what brings something that fits: of packages that are not there, not all ids are known."""
    found = {}
    for extra, what in ids.missing.items():
        known = [record.id for record in records() if record.needs is not None and record.needs.extra == extra]
        for family in families():
            if family.package.extra == extra:
                known += [*filter(None, [family.example]), family.package.name, *map(_words, family.patterns)]
        if any(map(fits, [extra, *known])):
            found[extra] = what
    return found


def _install(extra: str) -> str:
    return f"pip install 'stepmill[{extra}]'"


def _words(pattern: str) -> str:
    """The letters of a regular expression of ids: ``BabyAI-.+-v\\d+`` is about ``BabyAI-``."""
    return re.split(r"[\\(\[.]", pattern)[0]


def _refuse(pattern: str, ids: EnvList, missing: dict[str, MissingFamily]) -> None:
    if missing:
        what = ", ".join(f"{_install(extra)} brings {one}" for extra, one in missing.items())
        raise click.UsageError(f"no installed env fits {pattern!r}, but {what}")
    near = ids_like(pattern, ids)
    hint = f": did you mean {' or '.join(near)}?" if near else ": `stepmill list` lists all"
    raise click.UsageError(f"no env fits {pattern!r}{hint}")


def _document(groups: Groups, missing: dict[str, MissingFamily]) -> dict[str, object]:
    return {
        "envs": [
            {"id": id, "family": family, "backend": _BACKENDS[runs_on]}
            for (family, runs_on), ids in groups.items()
            for id in ids
        ],
        "missing": [{"extra": extra, **one._asdict(), "install": _install(extra)} for extra, one in missing.items()],
    }


# ---- what is shown ---------------------------------------------------------------------------------


def _draw(out: Console, groups: Groups, missing: dict[str, MissingFamily], whole: bool) -> None:
    if not out.is_terminal:
        for ids in groups.values():
            out.out("\n".join(ids))
        return
    for (family, runs_on), ids in groups.items():
        style, count = "bold green" if runs_on == _NATIVE else "bold", len(ids)
        out.print(Text.assemble((family, style), (f"  {count:,} id{'s' * (count != 1)}, {runs_on}", "dim")))
        shown = ids if whole or count <= _SHOWN else ids[: _SHOWN // 4]
        out.print(Padding(Columns([Text(id) for id in shown], padding=(0, 2), column_first=True), (0, 0, 0, 2)))
        if len(shown) < count:
            more = f"and {count - len(shown):,} more: stepmill list {family}"
            out.print(Padding(Text(more, style="dim italic"), (0, 0, 0, 2)))
        out.print()
    if missing:
        table = Table.grid(padding=(0, 2))
        for extra, one in missing.items():
            table.add_row(Text(_install(extra), style="cyan", no_wrap=True, overflow="fold"), f"brings {one}")
        out.print(Text("not installed", style="bold"))
        out.print(Padding(table, (0, 0, 0, 2)))
