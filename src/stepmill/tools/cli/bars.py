"""Bars: in the terminal, and as a picture."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rich.bar import Bar
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stepmill.system.optional import require
from stepmill.tools.cli.terminal import short

_NARROW = 70
_OURS, _OTHERS, _TEXT, _MUTED = "#0f6fcf", "#8a919a", "#1f2328", "#59636e"


class Measure(NamedTuple):
    """What one bar shows: its name, how long it is, whether it is ours, and a remark."""

    name: str
    value: float
    is_ours: bool = False
    remark: str = ""


def bars_of(out: Console, title: str, measures: Sequence[Measure], unit: str) -> Table:
    """Lines of text, the longest bar as wide as there is room."""
    longest = max((one.value for one in measures), default=0.0) or 1.0
    width = 16 if out.width < _NARROW else max(20, out.width - 70)
    table = Table(title=title, title_style="bold", title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, overflow="ellipsis")
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for one in measures:
        style = "bold cyan" if one.is_ours else ""
        value = Text(f"{short(one.value)} {unit}", style)
        drawn = Bar(
            longest, 0, max(one.value, longest / width / 8), width=width, color="cyan" if one.is_ours else "default"
        )
        table.add_row(Text(one.name, style), drawn, value, one.remark)  # what there is must be seen
    return table


def require_matplotlib() -> None:
    """Says so if there is no Matplotlib. What it logs when it is imported is not shown, such as that the home folder is
    read-only: it works all the same.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    require("matplotlib", "matplotlib", "cli", "a plot")


def save_bars(path: Path, title: str, measures: Sequence[Measure], unit: str, note: str) -> None:
    """Draws them as a picture, in the format that the name of the file says: png, svg or pdf."""
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.4 + 0.42 * len(measures)), layout="constrained")
    axes = figure.add_subplot(frame_on=False, xticks=[])
    names, values = [one.name for one in measures], [one.value for one in measures]
    drawn = axes.barh(names, values, height=0.62, color=[_OURS if one.is_ours else _OTHERS for one in measures])
    labels = [f"{short(one.value)}" + (f"  ({one.remark})" if one.remark else "") for one in measures]
    axes.bar_label(drawn, labels, padding=5, color=_TEXT)
    axes.invert_yaxis()
    axes.set_xlim(0, max(values) * 1.25)
    axes.tick_params(length=0, labelcolor=_TEXT)
    figure.suptitle(title, x=0.012, ha="left", fontweight="bold", fontsize=13, color=_TEXT)
    figure.supxlabel(f"{unit}: more is better. {note}", x=0.012, ha="left", fontsize=9, color=_MUTED)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
