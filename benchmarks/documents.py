"""Writes the figures into the documents, between marker comments, from the JSON files.

``<!-- benchmark:NAME -->`` ... ``<!-- /benchmark:NAME -->`` holds what this module wrote; the text around it is the
author's. NAME is a table (``sync``), a plot (``plot-readme``) or a fact about all machines (``fact-headline``).
Each machine that has results gets its own table or plot, unless the marker names one:
``<!-- benchmark:plot-readme aarch64-2 -->``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import plots, tables
from benchmarks.cells import MISSING, Results, Table, envpool, measured, number, time_of
from benchmarks.python_envs import LABELS, PEERS

DOCUMENTS = (
    "README.md",
    *(
        f"docs/{page}.md"
        for page in ("index", "performance", "figures", "own-envs", "sizing", "ray", "di-engine", "cuda")
    ),
)
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
            found = [FACTS[name.removeprefix("fact-")](chosen)]
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
    with_what = measured(results, part)
    versions = f"{plots.versions(results, part)}; Python {with_what['python']}; {with_what['date']}"
    return f"{plots.place(results, part)}; {versions}:\n\n{table.markdown()}"


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


# ---- the figures of the README ---------------------------------------------------------------------

# What is compared: the part that measures it, and how many envs; all envs of a part that have this number.
KINDS = {"CartPole": ("sync", 1024), "MuJoCo": ("mujoco", 64), "Atari": ("atari", 64)}
GYMNASIUMS = {"gymnasium": "Gymnasium SyncVectorEnv", "gymnasium_async": "Gymnasium AsyncVectorEnv"}


def headline(machines: Sequence[Results]) -> str | None:
    """How many times as fast as the others, on the first machine; what the other machines reach comes after it."""
    shown = [one for one in machines if all(_compared(one, kind, ("envpool",)) for kind in KINDS)]
    if not shown:
        return None
    told = []
    for one in shown:
        over = [_compared(one, kind, ("envpool",)) for kind in KINDS]
        if one is not shown[0]:
            told.append(f"On {place(one)} it is {_listed(over)} times EnvPool.")
            continue
        beside = _listed([_compared(one, kind, GYMNASIUMS) for kind in KINDS])
        told += [
            f"**{over[0]} times as fast as {envpool(one, 'sync')} on CartPole, {over[1]} times on MuJoCo,",
            f"{over[2]} times on Atari**, and {beside} times as fast as Gymnasium's vector envs:",
            f"1,024 CartPoles, and 64 envs of each task and game, on {place(one)}",
            f"(`python -m benchmarks --parts {','.join(part for part, _ in KINDS.values())}`).",
        ]
    return " ".join(told)


def side_by_side(machines: Sequence[Results]) -> str | None:
    """A column per machine, and the command that measures a row."""
    shown = [one for one in machines if any(cell(one) for _, _, cell in ROWS)]
    if not shown:
        return None
    rows = [[label, *(cell(one) or MISSING for one in shown), f"`--parts {part}`"] for label, part, cell in ROWS]
    table = Table("", ["", *map(place, shown), "`python -m benchmarks`"], rows)
    return f"{plots.versions(shown[0], 'sync')}; steps per second, k is a thousand, M a million:\n\n{table.markdown()}"


FACTS: dict[str, Callable[[Sequence[Results]], str | None]] = {"headline": headline, "machines": side_by_side}


def _compared(results: Results, kind: str, others: Iterable[str]) -> str | None:
    """How many times as fast as the best of the others, over all envs of a kind: 33, or 1.0 to 1.4."""
    part, num_envs = KINDS[kind]
    ratios = [
        row["stepmill"]["steps_per_s"] / max(row[name]["steps_per_s"] for name in others if name in row)
        for row in results["parts"].get(part) or []
        if row["num_envs"] == row["batch_size"] == num_envs and any(name in row for name in others)
    ]
    ends = [round_ratio(ratio) for ratio in (min(ratios), max(ratios))] if ratios else []
    return " to ".join(dict.fromkeys(ends)) or None


def _cell(part: str, env: str, num_envs: int) -> Callable[[Results], str | None]:
    """Our steps per second, EnvPool's, and those of the better of Gymnasium's vector envs."""

    def cell(results: Results) -> str | None:
        wanted = env, num_envs, num_envs
        rows = results["parts"].get(part) or []
        row = next(
            (row for row in rows if (row["env"], row["num_envs"], row.get("batch_size", num_envs)) == wanted), None
        )
        if row is None or "envpool" not in row:
            return None
        return _rates(row, envpool="EnvPool", **_best(row, GYMNASIUMS))

    return cell


def _python_cell(results: Results) -> str | None:
    """For the envs of the README's plot: many, and each step works for a while."""
    row = next((row for row in results["parts"].get("python") or [] if row["env"] == "busy"), None)
    if row is None or not {"auto", "meeting"} <= row.keys() or not any(name in row for name in PEERS):
        return None
    return _rates(row, "auto", **_best(row, {name: LABELS[name] for name in PEERS}), meeting="plain loops on all cores")


def _step_cell(results: Results) -> str | None:
    part = results["parts"].get("overhead") or {}
    if not {"stepmill", "envpool"} <= part.keys():
        return None
    ours, theirs = (time_of(part[name]["step_ns"]) for name in ("stepmill", "envpool"))
    return f"**{ours}**; EnvPool {theirs}"


ROWS: Sequence[tuple[str, str, Callable[[Results], str | None]]] = (
    ("1,024 CartPoles", "sync", _cell("sync", "CartPole-v1", 1024)),
    ("64 Ants of MuJoCo", "mujoco", _cell("mujoco", "Ant-v5", 64)),
    ("64 HalfCheetahs of MuJoCo", "mujoco", _cell("mujoco", "HalfCheetah-v5", 64)),
    ("64 games of Pong", "atari", _cell("atari", "Pong-v5", 64)),
    ("64 games of Doom", "doom", _cell("doom", "Basic-v1", 64)),
    ("64 Python envs, 100 µs of work each", "python", _python_cell),
    ("1 CartPole: time of a step", "overhead", _step_cell),
)


def _rates(row: dict[str, Any], ours: str = "stepmill", **others: str) -> str:
    theirs = ", ".join(f"{label} {number(row[name]['steps_per_s'])}" for name, label in others.items())
    return f"**{number(row[ours]['steps_per_s'])}**; {theirs}"


def _best(row: dict[str, Any], labels: dict[str, str]) -> dict[str, str]:
    """The fastest other library of those that were measured, with its label."""
    best = max((name for name in labels if name in row), key=lambda name: row[name]["steps_per_s"])
    return {best: labels[best]}


# ---- words -----------------------------------------------------------------------------------------


def place(results: Results) -> str:
    machine = results["machine"]
    return f"{machine['cores']} {machine['architecture'].replace('_', '-')} cores"


def round_ratio(ratio: float) -> str:
    """Rounded as in speech: 2.1, 38, 540."""
    if ratio < 10:
        return f"{ratio:.1f}"
    return f"{ratio:.0f}" if ratio < 100 else f"{round(ratio, -1):,.0f}"


def _listed(words: Sequence[str | None]) -> str:
    *first, last = (word or MISSING for word in words)
    return f"{', '.join(first)} and {last}"
