"""``stepmill new``: what it writes works as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_its_tests_pass_and_the_commands_work(stepmill_command: Run, folder: Path, monkeypatch: Any) -> None:
    done = stepmill_command("new", "brook_crossing")
    assert done.code == 0
    assert "stepmill run brook_crossing:BrookCrossingEnv" in done.out
    monkeypatch.chdir(folder / "brook_crossing")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    tested = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert tested.returncode == 0, tested.stdout
    assert " passed" in tested.stdout
    assert "skipped" not in tested.stdout

    checked = stepmill_command("check", "brook_crossing:BrookCrossingEnv", "--set", "max_steps=30", "--json")
    assert checked.code == 0
    assert (checked.json["findings"], checked.json["unchecked"]) == ([], {})

    policy = ["--policy", "brook_crossing.policy:steer", "--set", "current=0.01"]
    for backend in ("process", "inline"):
        options = ["--num-envs", 2, "--steps", 200, "--backend", backend, "--json"]
        played = stepmill_command("run", "brook_crossing:BrookCrossingEnv", *policy, *options)
        assert played.code == 0, played.err
        assert played.json["return"]["mean"] > 1


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_native_its_tests_pass_and_the_commands_work(stepmill_command: Run, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    done = stepmill_command("new", "--native", "brook_walk")
    assert done.code == 0
    assert "stepmill check brook_walk.h" in done.out
    monkeypatch.chdir(folder / "brook_walk")
    assert sorted(os.listdir()) == ["README.md", "brook_walk.h", "brook_walk.py", "test_brook_walk.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    tested = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert tested.returncode == 0, tested.stdout
    assert "skipped" not in tested.stdout

    for task in ("brook_walk.h", "brook_walk.h:BrookWalk"):
        checked = stepmill_command("check", task, "--set", "size=3", "--json")
        assert (checked.code, checked.json["findings"]) == (0, [])
    compared = stepmill_command("verify", "brook_walk.h", "--reference", "brook_walk.py:BrookWalk", "--steps", 500)
    assert compared.code == 0, compared.err
    assert "1 equal" in compared.out
    played = stepmill_command("run", "brook_walk.h", "--num-envs", 64, "--steps", 5000, "--json")
    assert played.json["return"]["mean"] < 1


def test_native_names_follow_from_the_folder(stepmill_command: Run, folder: Path) -> None:
    found = stepmill_command("new", "--native", "Lantern3D", "--json").json
    assert (found["folder"], found["env"]) == ("Lantern3D", "lantern3d.h")
    text = "".join((folder / file).read_text() for file in found["files"])
    assert "template" not in text.lower()
    assert "class Lantern3D {" in text
    assert "from lantern3d import Lantern3D" in text


@pytest.mark.parametrize(
    ("given", "env"),
    [
        ("lantern-maze", "lantern_maze:LanternMazeEnv"),
        ("LanternMaze", "lantern_maze:LanternMazeEnv"),
        ("lantern_env", "lantern_env:LanternEnv"),
        ("Lantern3D", "lantern3d:Lantern3DEnv"),
    ],
)
def test_names_follow_from_the_folder(stepmill_command: Run, folder: Path, given: str, env: str) -> None:
    found = stepmill_command("new", given, "--json").json
    assert (found["folder"], found["env"]) == (given, env)
    for file in found["files"]:
        text = (folder / file).read_text().lower()
        assert "template" not in text + file.lower()
        assert "stepmill.tools.cli" not in text
    assert f"{given}/pyproject.toml" in found["files"]
    package = env.partition(":")[0]
    assert {f"{given}/{package}/{one}.py" for one in ("action", "observation", "reward", "config", "env")} <= {
        *found["files"]
    }
    assert os.listdir(folder) == [given]


def test_a_name_that_contains_that_of_the_template(stepmill_command: Run, folder: Path) -> None:
    found = stepmill_command("new", "TemplateEnv", "--json").json
    assert found["env"] == "template_env:TemplateEnv"
    text = "".join((folder / file).read_text() for file in found["files"])
    assert "template_env_env" not in text
    assert "from template_env import TemplateConfig, TemplateEnv" in text


def test_a_path_and_an_empty_folder_are_fine(stepmill_command: Run, folder: Path) -> None:
    (folder / "envs" / "quiet_pond").mkdir(parents=True)
    done = stepmill_command("new", "envs/quiet_pond")
    assert done.code == 0
    assert (folder / "envs/quiet_pond/quiet_pond/env.py").is_file()
    assert "cd envs/quiet_pond" in done.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("taken", "taken exists already, and is not overwritten"),
        ("a_file", "a_file exists already"),
        ("numpy", "there is a module 'numpy' already"),
        ("json", "there is a module 'json' already"),
        ("tests", "there is a module 'tests' already"),
        ("two words", "expected letters, digits, - and _"),
        ("3d", "expected letters, digits, - and _"),
        ("class", "'class' is a word of Python's own"),
        ("_", "expected letters, digits, - and _"),
        ("_pond", "beginning with a letter"),
        ("nowhere/quiet_pond", "there is no folder"),
    ],
)
def test_what_is_refused_is_one_line_and_leaves_nothing(
    stepmill_command: Run, folder: Path, name: str, said: str
) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "mine.txt").write_text("mine")
    (folder / "a_file").write_text("mine")
    done = stepmill_command("new", name)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert sorted(os.listdir(folder)) == ["a_file", "taken"]
    assert os.listdir(folder / "taken") == ["mine.txt"]


def test_what_cannot_be_written_is_one_line(stepmill_command: Run, folder: Path, monkeypatch: Any) -> None:
    def full(self: Path, *arguments: Any, **more: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    done = stepmill_command("new", "quiet_pond")
    assert done.code == 2
    assert done.err == "stepmill: quiet_pond cannot be written: No space left on device\n"
    assert os.listdir(folder) == []
