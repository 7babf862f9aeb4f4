"""Writes the figures into the documents, between marker comments, from the JSON files.

``<!-- benchmark:NAME -->`` ... ``<!-- /benchmark:NAME -->`` holds what this module wrote; the text around it is the
author's. NAME is a table (``sync``), a plot (``plot-readme``) or what ``facts`` says of all machines (``fact-native``).
Each machine that has results gets its own table or plot, unless the marker names one:
``<!-- benchmark:plot-readme aarch64-2 -->``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks import facts, plots, tables
from benchmarks.tables import Results

DOCUMENTS = ("README.md", "docs/index.md", "docs/performance.md", "docs/sizing.md", "docs/ray.md", "docs/di-engine.md")
MARKER = re.compile(r"(<!-- benchmark:([\w-]+)(?: ([\w-]+))? -->\n).*?(<!-- /benchmark:\2 -->)", re.DOTALL)
NOTHING = "Not measured yet: `make bench` fills this in.\n"


def write(root: Path, all_results: Sequence[Results], images: Path) -> list[Path]:
    """Fills every marker block of the documents; returns the documents that have any."""
    written = []
    for name in DOCUMENTS:
        path = root / name
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        if not MARKER.search(text):
            continue
        path.write_text(fill(text, all_results, path.parent, images), encoding="utf-8")
        written.append(path)
    return written


def fill(text: str, all_results: Sequence[Results], folder: Path, images: Path) -> str:
    """The text with every block rewritten. ``folder`` is that of the document, for the paths of pictures."""

    def block(match: re.Match[str]) -> str:
        name, machine = match[2], match[3]
        chosen = [one for one in all_results if machine in (None, one["machine"]["machine"])]
        if name.startswith("fact-"):
            found = [facts.FACTS[name.removeprefix("fact-")](chosen)]
        else:
            found = [_piece(name, one, folder, images) for one in chosen]
        pieces = [piece for piece in found if piece]
        return match[1] + ("\n\n".join(pieces) + "\n" if pieces else NOTHING) + match[4]

    return MARKER.sub(block, text)


def _piece(name: str, results: Results, folder: Path, images: Path) -> str | None:
    if name.startswith("plot-"):
        return _plot(name.removeprefix("plot-"), results, folder, images)
    return _table(name, results)


def _table(name: str, results: Results) -> str | None:
    part, make = tables.TABLES[name]
    if not results["parts"].get(part):
        return None
    table = make(results)
    if not table.rows:
        return None
    with_what = tables.measured(results, part)
    versions = f"{plots.versions(results, part)}; Python {with_what['python']}; {with_what['date']}"
    return f"{plots.place(results)}; {versions}:\n\n{table.markdown()}"


def _plot(plot: str, results: Results, folder: Path, images: Path) -> str | None:
    """The picture; it names the machine itself."""
    if not plots.drawable(plot, results):
        return None
    light, dark = (
        os.path.relpath(images / plots.file_name(plot, results, theme), folder) for theme in ("light", "dark")
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{plots.PLOTS[plot].alt}" src="{light}" width="800"></picture>'
    )
