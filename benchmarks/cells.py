"""A table, in a terminal and as Markdown, and what its cells say: rates, ratios, times and versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from stepmill.tools.cli.terminal import short as number

Results = dict[str, Any]
Row = dict[str, Any]
MISSING = "–"


@dataclass(frozen=True)
class Table:
    """A heading, column names (the first one is the row's name) and rows of text."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [
            "| " + " | ".join(self.columns) + " |",
            "|---" + "|---:" * (len(self.columns) - 1) + "|",
            *("| " + " | ".join(row) + " |" for row in self.rows),
        ]
        return "\n".join(lines)

    def print(self, console: Console) -> None:
        console.print(f"\n[bold]{self.title}[/]", soft_wrap=True)
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i == 0 else "right", no_wrap=i == 0)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)


def by_row(title: str, rows: Sequence[Row], *columns: tuple[str, Callable[[Row], str]]) -> Table:
    """A column is its heading, and what it says of a row."""
    return Table(title, [heading for heading, _ in columns], [[cell(row) for _, cell in columns] for row in rows])


# ---- what a part was measured with -----------------------------------------------------------------


def measured(results: Results, part: str) -> dict[str, Any]:
    """Python, packages and date of a part: parts can be measured separately."""
    found: dict[str, Any] = results.get("measured", {}).get(part) or results["machine"]
    return found


def envpool(results: Results, part: str) -> str:
    """EnvPool with the version that a part was measured with."""
    version = measured(results, part)["packages"].get("envpool")
    return f"EnvPool {version}" if version else "EnvPool"


# ---- cells -----------------------------------------------------------------------------------------


def three_digits(value: float) -> str:
    return f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}"


def rate(result: dict[str, Any] | None) -> str:
    return MISSING if result is None else number(result["steps_per_s"])


def times(row: dict[str, Any], other: str) -> str:
    """How many times as fast stepmill is."""
    return f"{three_digits(row['stepmill']['steps_per_s'] / row[other]['steps_per_s'])}x" if other in row else MISSING


def percent(row: dict[str, Any], name: str, of: str) -> str:
    return f"{row[name]['steps_per_s'] / row[of]['steps_per_s']:.0%}" if {name, of} <= row.keys() else MISSING


def count_envs(count: int) -> str:
    return f"{count:,} env{'s' if count != 1 else ''}"


def time_of(ns: float | None) -> str:
    if ns is None:
        return MISSING
    for unit, letter in ((1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit:
            return f"{three_digits(ns / unit)} {letter}"
    return f"{ns:.0f} ns"


def bare_rate(results: Results) -> float | None:
    """Steps per second of the plain loop on one core, at the number of envs where it is fastest."""
    part = results["parts"].get("bare")
    return max(1e9 / row["env_ns"] for row in part) if part else None
