"""The benchmarks: the documents show their figures, and a process that measures another library loads only that."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def benchmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)


def test_the_documents_show_the_figures_of_the_results(benchmarks: None) -> None:
    """Mended: `python -m benchmarks --write-docs`."""
    from benchmarks import documents, store

    results = store.load_all()
    for name in documents.DOCUMENTS:
        path = ROOT / name
        text = path.read_text(encoding="utf-8")
        assert documents.fill(text, results, path.parent, ROOT / "docs" / "images") == text, name


def test_saved_results_are_compact_and_stay_as_they_are(benchmarks: None, tmp_path: Path) -> None:
    from benchmarks import store

    for path in store.RESULTS.rglob("*.json"):
        copy = tmp_path / path.name
        store.save(copy, store.load(path))
        assert copy.read_text("utf-8") == path.read_text("utf-8"), path.name
    store.save(copy, {"machine": {"cores": 2}, "parts": {"a": [1 / 3, {"b": (1, 2)}], "c": None}})
    assert json.loads(copy.read_text("utf-8"))["parts"] == {"a": [0.333333333, {"b": [1, 2]}], "c": None}
    assert len(copy.read_text("utf-8").splitlines()) == 9


def test_the_modules_import_each_other_in_one_direction() -> None:
    TopologicalSorter({path.stem: imported_by(path) for path in (ROOT / "benchmarks").glob("*.py")}).prepare()


def imported_by(path: Path) -> set[str]:
    """The modules of benchmarks that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "benchmarks":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks."):
            found.add(str(node.module).partition(".")[2])
    return found


def test_the_process_of_another_library_does_not_load_stepmill() -> None:
    code = (
        "import sys; from benchmarks.python_child import leave_out_stepmill; leave_out_stepmill()\n"
        "import benchmarks.python_contestants, stepmill.tools.measuring.runners\n"
        "print([name for name in sys.modules if name.startswith('stepmill') and 'tools' not in name])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "['stepmill']", done.stderr
