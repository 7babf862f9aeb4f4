"""``stepmill check``."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_a_good_env_has_no_findings(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("check", "my_envs.py:Walk", "--set", "length=3")
    assert done.code == 0
    assert "37 rules checked, 0 findings\n" in done.out


def test_a_native_id(stepmill_command: Run) -> None:
    done = stepmill_command("check", "CartPole-v1", "--episodes", 1, "--json")
    assert done.code == 0
    assert done.json["findings"] == []
    assert "obs_bounds" in done.json["checked"]


def test_files_and_libraries_are_targets(
    stepmill_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a compiler: what is asked here is whether they are understood."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "none.so").write_text("not a library")
    (tmp_path / "empty.h").write_text("int x;")
    for task, said in (
        ("none.so", "the library cannot be loaded"),
        ("empty.h", "expected a class with `static EnvSpec spec"),
        ("nowhere.h:Coin", "there is no file"),
    ):
        done = stepmill_command("check", task)
        assert done.code == 2
        assert said in done.err


def test_findings_are_said_in_words_and_exit_code_1(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("check", "my_envs.py:Careless")
    assert done.code == 1
    assert "x global_generators  np.random in reset()" in done.out
    assert "-> Use a generator of the env's own" in done.out
    assert "1 finding" in done.out
    found = stepmill_command("check", "my_envs.py:Careless", "--json").json
    (finding,) = found["findings"]
    assert finding["rule"] == "global_generators"
    assert finding["count"] > 1
    assert {"where", "expected", "got", "advice"} <= finding.keys()
    assert found["unchecked"] == {"cfg_unchanged": "needs a configuration: pass cfg="}


def test_what_was_not_checked_is_said(stepmill_command: Run, user_folder: Path) -> None:
    out = stepmill_command("check", "my_envs.py:Endless", "--steps", 5).out
    assert "? not checked: episode_return" in out
    assert "no episode ended within 5 steps" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["my_envs.py:Wolk"], "did you mean Walk?"),
        (["my_envs.py:np"], "expected an env, an env class, a function that makes one or an id"),
        (["CartPole-v7"], "did you mean CartPole-v1"),
        (["CartPole-v1", "--set", "gravity=1"], "has no config key 'gravity'"),
        (["CartPole-v1", "--episodes", "0"], "0 is not in the range"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(
    stepmill_command: Run, user_folder: Path, arguments: list[str], said: str
) -> None:
    done = stepmill_command("check", *arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert done.err.count("\n") == 1


def test_ctrl_c_ends_it_with_what_there_is(user_folder: Path) -> None:
    command = [sys.executable, "-m", "stepmill", "check", "my_envs.py:Endless", "--steps", "1000000000", "--json"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert child.stderr.readline() == "playing\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert '"interrupted": true' in out
    assert "the check was interrupted" in out
