"""An installation of which not even stepmill itself can be imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stepmill


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The program that pip writes for the entry point, with what is in the folder before what is installed."""
    code = "import sys; from stepmill_command import main; sys.exit(main())"
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False, timeout=600
    )


def test_a_good_one_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "--version")
    assert (done.returncode, done.stdout) == (0, f"stepmill {stepmill.__version__}\n")


@pytest.mark.parametrize("package", ["numpy", "gymnasium"])
def test_a_broken_package_is_one_line_that_says_what_to_do(tmp_path: Path, package: str) -> None:
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise RuntimeError('half\\ninstalled')")
    done = run(tmp_path, "doctor")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "stepmill: the installation is broken: RuntimeError: half installed. It needs numpy>="
    )
    assert "is installed" in done.stderr
    assert "pip install --upgrade --force-reinstall 'stepmill[cli]'" in done.stderr
