"""Which interpreter ``python=`` means, and what of this process goes there."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from stepmill.errors import ConfigError
from stepmill.system.interpreters import build_mark, environ_for, interpreter, is_same_build, own_folders
from support.islands import make_environment, make_program


def test_a_folder_a_program_and_a_name_are_all_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_environment(tmp_path / "there", packages=False)
    python = folder / "bin" / "python"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    (tmp_path / "programs").mkdir()
    named = make_program(tmp_path / "programs" / "python9.99", "")
    for given in (folder, str(folder), python, "there", "there/bin/python", "~/there", "./there/../there"):
        found = interpreter("python", given)
        assert os.path.samefile(found, python)
        assert os.path.isabs(found)
        assert Path(found).is_symlink()  # what it leads to would be an interpreter without the packages
    assert interpreter("python", "python9.99") == str(named)


@pytest.mark.parametrize("given", [3, b"there", "", None, ["there"]], ids=repr)
def test_only_paths_are_taken(given: Any) -> None:
    with pytest.raises(ConfigError, match="python: expected the path of a Python interpreter, or of the folder"):
        interpreter("python", given)


def test_what_is_not_there_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no such file or folder\. To make one: python -m venv .*/nowhere"):
        interpreter("python", tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"without bin/python\. To make one: python -m venv"):
        interpreter("python", tmp_path)
    (tmp_path / "text").write_text("")
    with pytest.raises(ConfigError, match="may not be executed"):
        interpreter("python", tmp_path / "text")


def test_only_the_users_folders_go_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stdlib, packages = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
    dynamic, other = f"{stdlib}/lib-dynload", "/opt/more/lib/python3/dist-packages"
    path = ["", str(tmp_path), f"{sys.prefix}/lib/python311.zip", stdlib, dynamic, packages, other, "/mine/late"]
    monkeypatch.setattr(sys, "path", path)
    assert own_folders() == ["", str(tmp_path), None, "/mine/late"]  # None: its own path
    monkeypatch.setattr(sys, "path", ["/mine"])
    assert own_folders() == ["/mine", None]


def test_an_environment_is_entered_as_if_it_were_activated(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "there", packages=False)
    given = {"PYTHONHOME": "x", "PYTHONPATH": "y", "VIRTUAL_ENV": "z", "PATH": "/bin", "MINE": "1"}
    there = environ_for(str(folder / "bin" / "python"), given)
    assert there == {"MINE": "1", "VIRTUAL_ENV": str(folder), "PATH": f"{folder / 'bin'}:/bin"}
    assert environ_for("/usr/bin/python3", given) == {"MINE": "1", "PATH": "/bin"}


def test_builds_of_one_version_are_told_apart_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.system.interpreters._PACKAGE", tmp_path)
    marks = []
    for name, text in (("a.py", "x = 1"), ("a.py", "x = 2"), ("b.py", "x = 2"), ("b.py", "x = 2")):  # of one size
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_text(text)
        marks.append(build_mark.__wrapped__())  # not the one that is remembered
    assert len({one["python"] for one in marks[:3]}) == 3
    assert marks[3] == marks[2]


def test_the_compiled_module_is_compared_with_one_for_the_same_python_and_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "stepmill.system.interpreters.build_mark", lambda: {"python": 1, "_native.cpython-311-aarch64.so": 2}
    )
    assert is_same_build({"python": 1, "_native.cpython-311-aarch64.so": 2})
    assert is_same_build({"python": 1, "_native.cpython-312-aarch64.so": 3})
    assert not is_same_build({"python": 1, "_native.cpython-311-aarch64.so": 3})
    assert not is_same_build({"python": 2, "_native.cpython-312-aarch64.so": 3})
    for other in ({}, 1, None):  # it did not say, or says something else
        assert not is_same_build(other)
