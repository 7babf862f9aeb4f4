"""``stepmill doctor``: what is wrong with this installation, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from stepmill.system.optional import require
from stepmill.tools.cli.diagnosis.part import Finding, Part
from stepmill.tools.cli.options import json_option
from stepmill.tools.cli.program import FAILED
from stepmill.tools.cli.terminal import Ending, Terminal, until_interrupted

__all__ = ["command"]

_STYLES = {"broken": "bold red", "warning": "yellow", "note": "cyan"}


@click.command("doctor")
@json_option
def command(terminal: Terminal) -> int:
    """Look at this machine and what is installed: what is broken, and what to do about it.

    It imports each optional package and makes a tiny pool on every backend, in processes of their own. The exit code is
    1 if something is broken; warnings and notes do not count.
    """
    require("packaging", "packaging", "cli", "stepmill doctor")
    parts: list[Part] = []
    with until_interrupted() as ending:
        _look(terminal, parts)
    findings = sorted((one for part in parts for one in part.findings), key=lambda one: list(_STYLES).index(one.level))
    broken = any(one.level == "broken" for one in findings)
    document = {
        "broken": broken,
        "findings": [vars(one) for one in findings],
        **{part.title: part.facts for part in parts},
        "interrupted": ending.interrupted,
    }
    terminal.result(document, lambda out: _draw(out, parts, findings, ending))
    return FAILED if broken and not ending.interrupted else ending.code


def _look(terminal: Terminal, parts: list[Part]) -> None:
    from stepmill.tools.cli.diagnosis import machine, packages, trials

    parts += [machine.look_at_machine(), machine.look_at_limits()]
    parts += [packages.look_at_packages(), packages.look_at_extras()]
    pools, imports = Part("pools"), Part("imports")
    parts += [pools, imports]
    of_pools, of_imports = trials.pools(), trials.imports()
    with terminal.progress("trying it out", len(of_pools) + len(of_imports), unit="trials") as bar:
        trials.try_all(pools, of_pools, lambda trial: bar.add(1, trial.name))
        trials.try_all(imports, of_imports, lambda trial: bar.add(1, trial.name))


# ---- what is shown ---------------------------------------------------------------------------------


def _draw(out: Console, parts: Iterable[Part], findings: list[Finding], ending: Ending) -> None:
    for part in parts:
        if part.title != "imports":  # those that fail are among the findings
            _draw_part(out, part)
    if not findings:
        out.print(Text("Everything is as it should be.", style="green"))
    for one in findings:
        out.print(Text.assemble((one.level, _STYLES[one.level]), f": {one.what}"))
        out.print(Padding(Text(f"-> {one.advice}"), (0, 0, 0, 2)))
    if ending.interrupted:
        out.print("Stopped before everything was tried.")


def _draw_part(out: Console, part: Part) -> None:
    out.print(Text(part.title, style="bold"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, text in part.facts.items():
        table.add_row(name, Text(text, style="red" if text == "fails" else ""))
    out.print(Padding(table, (0, 0, 0, 2)))
    out.print()
