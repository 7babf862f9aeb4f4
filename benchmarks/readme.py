"""Writes the figures into the documents, between marker comments, from the JSON files.

``<!-- benchmark:NAME -->`` ... ``<!-- /benchmark:NAME -->`` holds what this module wrote; the text around
it is nobody's but the author's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import plots, tables

Results = dict[str, Any]
DOCUMENTS = ("README.md", "docs/performance.md", "docs/di-engine.md")
MARKER = re.compile(r"(<!-- benchmark:([\w-]+) -->\n).*?(<!-- /benchmark:\2 -->)", re.DOTALL)


def write(root: Path, all_results: Sequence[Results], images: Path) -> list[Path]:
    """Fills every marker block of the documents; returns the documents that have any."""
    written = []
    for name in DOCUMENTS:
        path = root / name
        if not path.exists():
            continue
        text = path.read_text(encoding="utf-8")
        filled = MARKER.sub(
            lambda match, path=path: match[1] + block(match[2], all_results, path.parent, images) + match[3], text
        )
        if filled != text:
            path.write_text(filled, encoding="utf-8")
        if MARKER.search(text):
            written.append(path)
    return written


def block(name: str, all_results: Sequence[Results], folder: Path, images: Path) -> str:
    """A table, or a plot where the name begins with ``plot-``, for each machine that has the part."""
    pieces = []
    for results in all_results:
        piece = _plot(name, results, folder, images) if name.startswith("plot-") else _table(name, results)
        if piece:
            pieces.append(f"{piece}\n")
    return "\n".join(pieces) if pieces else "Not measured yet: `make bench` fills this in.\n"


def _table(name: str, results: Results) -> str | None:
    if not results["parts"].get(name):
        return None
    return f"{_machine(name, results)}\n\n{tables.TABLES[name](results).markdown()}"


def _plot(name: str, results: Results, folder: Path, images: Path) -> str | None:
    """The picture; it names the machine itself."""
    plot = name.removeprefix("plot-")
    if not plots.drawable(plot, results):
        return None
    light, dark = (
        os.path.relpath(images / plots.file_name(plot, results, theme), folder) for theme in ("light", "dark")
    )
    return (
        f'<picture><source media="(prefers-color-scheme: dark)" srcset="{dark}">'
        f'<img alt="{plot}, {results["machine"]["machine"]}" src="{light}" width="800"></picture>'
    )


def _machine(name: str, results: Results) -> str:
    machine = results["machine"]
    versions = plots.versions(results, name)
    cpu = machine["cpu"] or machine["architecture"]
    return f"{machine['cores']} cores, {cpu}; {versions}; Python {machine['python']}; {machine['date']}:"
