"""Bars: in the terminal, and as a PNG."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepmill.system.optional import require
from stepmill.tools.cli.terminal import short

__all__ = ["Bar", "grid_of", "print_bars", "require_matplotlib", "save_bars"]

_EIGHTHS = " ▏▎▍▌▋▊▉"
_NARROW = 70
_OURS, _OTHERS, _TEXT, _MUTED = "#0f6fcf", "#8a919a", "#1f2328", "#59636e"


class Bar(NamedTuple):
    """One bar: what it stands for, how long it is, whether it is ours, and a remark."""

    name: str
    value: float
    is_ours: bool = False
    remark: str = ""


def print_bars(out: Console, title: str, bars: Sequence[Bar], unit: str) -> None:
    """Draws them in lines of text."""
    out.print(Text(title, style="bold"), soft_wrap=True)
    out.print(grid_of(out, bars, unit))


def grid_of(out: Console, bars: Sequence[Bar], unit: str) -> Table:
    """The lines of text, the longest bar as wide as there is room."""
    longest = max((bar.value for bar in bars), default=0.0) or 1.0
    width = 16 if out.width < _NARROW else max(20, out.width - 70)
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=None)
    grid.add_column(min_width=width, no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    for bar in bars:
        style = "bold cyan" if bar.is_ours else ""
        line = _line(bar.value / longest, width, plain=not out.is_terminal and out.encoding != "utf-8")
        grid.add_row(Text(bar.name, style), Text(line, style), Text(f"{short(bar.value)} {unit}", style), bar.remark)
    return grid


def _line(share: float, width: int, plain: bool) -> str:
    if plain:
        return "#" * round(share * width)
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)  # what there is must be seen
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def require_matplotlib() -> None:
    """Says so if there is no Matplotlib. What it logs when it is imported is not shown, such as that the home folder is
    read-only: it works all the same.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    require("matplotlib", "matplotlib", "cli", "a plot")


def save_bars(path: Path, title: str, bars: Sequence[Bar], unit: str, note: str) -> None:
    """Draws them as a picture, in the format that the name of the file says: png, svg or pdf."""
    require_matplotlib()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 1.4 + 0.42 * len(bars)), layout="constrained")
    try:
        longest = max(bar.value for bar in bars)
        for y, bar in enumerate(bars):
            axes.barh(y, bar.value, height=0.62, color=_OURS if bar.is_ours else _OTHERS)
            label = f"{short(bar.value)}" + (f"  ({bar.remark})" if bar.remark else "")
            axes.annotate(label, (bar.value, y), (5, 0), textcoords="offset points", va="center", color=_TEXT)
        axes.set_yticks(range(len(bars)), [bar.name for bar in bars], color=_TEXT)
        axes.set_ylim(len(bars) - 0.4, -0.6)
        axes.set_xlim(0, longest * 1.25)
        axes.set_xticks([])
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
        figure.suptitle(title, x=0.012, ha="left", fontweight="bold", fontsize=13, color=_TEXT)
        figure.supxlabel(f"{unit}: more is better. {note}", x=0.012, ha="left", fontsize=9, color=_MUTED)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    finally:
        pyplot.close(figure)
