"""What is published: the contents of the wheel, the version, and the workflow that builds both."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import stepmill

ROOT = Path(__file__).parent.parent
WORKFLOW = ROOT / ".github" / "workflows" / "wheels.yml"


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """Of the wheel that `make test-dist` tests; else of what is installed, which came from a wheel too."""
    if "STEPMILL_WHEEL" in os.environ:
        with zipfile.ZipFile(os.environ["STEPMILL_WHEEL"]) as wheel:
            return {name: wheel.read(name) for name in wheel.namelist()}
    try:
        installed = metadata.files("stepmill") or []
    except metadata.PackageNotFoundError:
        pytest.skip("stepmill runs from a folder, not from an installation")
    return {str(one): Path(one.locate()).read_bytes() for one in installed if Path(one.locate()).is_file()}


def licences(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name.partition(".dist-info/licenses/")[2]: text for name, text in files.items() if "/licenses/" in name}


def test_types_and_stub_are_inside(files: dict[str, bytes]) -> None:
    assert {"stepmill/py.typed", "stepmill/_native.pyi"} <= set(files)


def test_what_a_game_of_doom_needs_is_inside(files: dict[str, bytes]) -> None:
    folder = "stepmill/zoo/vizdoom"
    needed = ("start_game.py", "configs/gather.cfg", "configs/battle.cfg")
    assert {f"{folder}/{name}" for name in needed} <= set(files)


def test_the_licence_of_everything_that_is_compiled_in_is_inside(files: dict[str, bytes]) -> None:
    found = licences(files)
    assert b"Apache License" in found["LICENSE"]
    listed = set(re.findall(r"`(\w+\.txt)`", found["licenses/README.md"].decode()))
    assert listed == {"nanobind.txt", "robin_map.txt", "numpy.txt", "libstdcxx.txt"}
    for name in listed:
        assert b"copyright (c)" in found[f"licenses/{name}"].lower(), name


def test_a_native_envs_headers_are_inside_with_all_that_they_include(files: dict[str, bytes]) -> None:
    include = "stepmill/include/"
    headers = {name.removeprefix(include): text.decode() for name, text in files.items() if name.startswith(include)}
    assert {"stepmill/env.h", "envs/debug/template.h"} <= set(headers)
    for name, text in headers.items():
        for included in re.findall(r'#include (?:"([^"]+)"|<(stepmill/[^>]+)>)', text):
            assert "".join(included) in headers, f"{name} includes {included}, which CMakeLists.txt does not install"


def test_a_native_env_compiles_with_the_headers_that_are_inside(files: dict[str, bytes], tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    include = "stepmill/include/"
    for name, text in files.items():
        if name.startswith(include):
            header = tmp_path / name.removeprefix(include)
            header.parent.mkdir(parents=True, exist_ok=True)
            header.write_bytes(text)
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", f"-I{tmp_path}", "-isystem", np.get_include()]
    command += ["-x", "c++", "-include", "envs/debug/template.h", "/dev/null"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_nothing_else_is_inside(files: dict[str, bytes]) -> None:
    for name in files:
        assert not re.search(r"^(tests|benchmarks|examples|cpp|build)/|\.(cpp|o|a)$", name), name


def test_the_wheel_is_for_many_linuxes() -> None:
    if "STEPMILL_WHEEL" not in os.environ:
        pytest.skip("only of wheels that `make dist` built")
    found = re.search(r"-manylinux_2_(\d+)_\w+\.", os.environ["STEPMILL_WHEEL"])
    assert found
    assert int(found[1]) <= 28, "docs/installing.md says for which systems the wheels are"


def test_programs_are_stripped(files: dict[str, bytes]) -> None:
    """And they name no folder of the machine on which they were built."""
    if "STEPMILL_WHEEL" not in os.environ:
        pytest.skip("only of wheels that `make dist` built")
    programs = {name: code for name, code in files.items() if code.startswith(b"\x7fELF")}
    assert {Path(name).name.split(".")[0] for name in programs} == {"_native"}
    for name, code in programs.items():
        assert b".symtab" not in code, f"{name} is not stripped"
        assert str(ROOT).encode() not in code, name


def test_the_version_is_written_in_one_place() -> None:
    """Everything else takes it from there."""
    assert f'__version__ = "{stepmill.__version__}"' in (ROOT / "src/stepmill/_version.py").read_text()
    assert stepmill.__version__ not in (ROOT / "CMakeLists.txt").read_text()
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()


def test_the_workflow_fits_its_schema() -> None:
    """It runs only at GitHub, so this is all that can be checked here."""
    pytest.importorskip("check_jsonschema", reason="the schema of workflows comes with check-jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", WORKFLOW]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_builds_for_every_python_that_we_name() -> None:
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    for matrix in re.findall(r"python: \[(.*)\]", WORKFLOW.read_text()):
        assert re.findall(r'"(.*?)"', matrix) == named


def test_the_workflow_compares_the_tag_with_the_version() -> None:
    """It greps for a line: in the file that has it."""
    (file,) = re.findall(r'grep .*"__version__ = .*" (\S+)$', WORKFLOW.read_text(), re.MULTILINE)
    assert f'__version__ = "{stepmill.__version__}"' in (ROOT / file).read_text().splitlines()
