"""The results: a JSON file for each machine, ``benchmarks/results/<machine>.json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.cells import Results

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
DIGITS = 9  # of numbers: more than any clock here can tell, and no figure in the documents is rounded twice


def load_all() -> list[Results]:
    """The results of all machines, and then those of DI-engine's environment."""
    return [load(path) for path in (*sorted(RESULTS.glob("*.json")), *sorted(RESULTS.glob("ding/*.json")))]


def load(path: Path) -> Results:
    results: Results = json.loads(path.read_text(encoding="utf-8"))
    return results


def save(path: Path, results: Results) -> None:
    """Compact, and each part on a line of its own: to measure one again changes one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_lines(results, depth=2) + "\n", encoding="utf-8")


def shown(path: Path) -> Path:
    """The path as seen from the project's folder, if it is in there."""
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path


def _lines(value: Any, depth: int) -> str:
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(_rounded(value), separators=(",", ":"), ensure_ascii=False)
    entries = (f"{json.dumps(key)}:{_lines(one, depth - 1)}" for key, one in value.items())
    return "{\n" + ",\n".join(entries) + "\n}"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value
