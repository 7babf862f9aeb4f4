"""Every Python block in the README and the docs runs, in the order of its file, in one namespace.
A plain block right below one is what it prints.

The C++ env of the how-to compiles, and links between the documents lead somewhere.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from stepmill.errors import MissingPackageError

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path) -> list[tuple[int, str, str | None]]:
    """Line number and text of each Python block, and what it prints, where the document shows that."""
    text = path.read_text(encoding="utf-8")
    return [(text.count("\n", 0, match.start(1)), match[1], match[2]) for match in BLOCK.finditer(text)]


def test_there_are_documents():
    assert {"README.md", "docs/interface.md"} <= {name(path) for path in DOCUMENTS}
    assert sum(len(blocks(path)) for path in DOCUMENTS) > 15
    assert sum(shown is not None for path in DOCUMENTS for _, _, shown in blocks(path)) >= 2


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if blocks(path)], ids=name)
def test_examples_run_and_print_what_is_shown(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))  # not the user's own, for docs/datasets.md
    namespace = {"__name__": "__example__"}
    for line, source, shown in blocks(path):
        # Blank lines in front, so that a traceback names the line of the document.
        try:
            exec(compile("\n" * line + source, str(path), "exec"), namespace)
        except MissingPackageError as error:  # a page about another library; `make integrations` has them all
            if os.environ.get("STEPMILL_INTEGRATIONS"):
                raise
            pytest.skip(str(error))
        printed = capsys.readouterr().out
        if shown is not None:
            assert printed == shown, f"{name(path)}, line {line}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name)
def test_links_lead_somewhere(path):
    text = path.read_text(encoding="utf-8")
    for match in LINK.finditer(text):
        target = match[1] or match[2]
        if re.match(r"\w+:", target):
            continue
        file, _, anchor = target.partition("#")
        goal = (path.parent / file) if file else path
        assert goal.exists(), f"{name(path)}: {target}"
        if anchor:
            assert anchor in anchors(goal), f"{name(path)}: {target}"


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub makes of headings."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_error_tree_is_the_one_in_the_code():
    from stepmill import errors

    tree = re.search(r"^    (StepmillError\n.*?)\n\n", errors.__doc__, re.DOTALL | re.MULTILINE)[1]
    tree = re.sub(r"^    ", "", tree, flags=re.MULTILINE)
    assert tree in (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")


def test_the_env_of_the_how_to_compiles(tmp_path):
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    text = (ROOT / "docs" / "adding-an-env.md").read_text(encoding="utf-8")
    header = next(
        block for block in re.findall(r"^```cpp\n(.*?)^```$", text, re.DOTALL | re.MULTILINE) if "class" in block
    )
    (tmp_path / "coin.h").write_text(header)
    (tmp_path / "try.cpp").write_text(
        '#include "coin.h"\n#include "core/table_of.h"\nauto* table = stepmill::table_of<stepmill::Coin>("Coin");\n'
    )
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wno-psabi", f"-I{ROOT / 'cpp'}"]
    command += ["-isystem", np.get_include(), str(tmp_path / "try.cpp")]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
