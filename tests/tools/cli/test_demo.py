"""``stepmill demo``, which ``make run`` starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.tools.measuring.runners import Contestant
from stepmill.views.gymnasium import GymnasiumPool

pytest.importorskip("matplotlib")

Run = Callable[..., Any]
QUICK = ["--num-envs", 4, "--seconds", 0.05]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_both_libraries_are_measured_and_their_episodes_compared(stepmill_command: Run, folder: Path) -> None:
    done = stepmill_command("demo", *QUICK, "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["id"], found["num_envs"], found["equal"], found["interrupted"]) == ("CartPole-v1", 4, True, False)
    assert set(found["steps_per_second"]) == {"stepmill", "Gymnasium SyncVectorEnv"}
    assert all(rate > 0 for rate in found["steps_per_second"].values())
    assert found["picture"] == "stepmill-demo.png"
    assert (folder / "stepmill-demo.png").read_bytes().startswith(b"\x89PNG")
    assert done.err == ""


def test_it_ends_with_bars_and_says_where_the_picture_is(stepmill_command: Run, folder: Path) -> None:
    done = stepmill_command("demo", *QUICK, "-o", folder / "plots" / "here.png")
    assert done.code == 0, done.err
    assert "CartPole-v1, 4 copies at once: steps per second" in done.out
    assert "times as many steps per second" in done.out
    assert "the same episodes, bit for bit: " in done.out
    assert str(folder / "plots" / "here.png") in done.out
    assert (folder / "plots" / "here.png").exists()
    assert "\x1b" not in done.out


def test_a_home_that_cannot_be_written_to(folder: Path) -> None:
    """Matplotlib complains of it at length, and works all the same."""
    (folder / "a-file").touch()
    command = [sys.executable, "-m", "stepmill", "demo", *map(str, QUICK)]
    given = {name: value for name, value in os.environ.items() if name not in ("MPLCONFIGDIR", "XDG_CONFIG_HOME")}
    home = {"HOME": str(folder / "a-file" / "home"), "XDG_CACHE_HOME": str(folder / "a-file")}
    done = subprocess.run(command, env={**given, **home}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "stepmill-demo.png").exists()


def test_an_env_that_gymnasium_lacks_runs_alone(stepmill_command: Run) -> None:
    done = stepmill_command("demo", "Catch-v0", *QUICK)
    assert done.code == 0, done.err
    assert "Gymnasium has no Catch-v0, so stepmill ran alone." in done.out


def test_an_env_that_is_not_native_is_not_compared_with_itself(stepmill_command: Run) -> None:
    done = stepmill_command("demo", "gymnasium:CartPole-v1", *QUICK)
    assert done.code == 0, done.err
    assert "stepmill ran Gymnasium's own env, so there are no episodes to compare." in done.out


def test_a_difference_is_exit_code_1(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Different:
        def __bool__(self) -> bool:
            return False

        def __str__(self) -> str:
            return "CartPole-v1: different at step 3"

    monkeypatch.setattr(stepmill, "verify", lambda *_, **__: Different())
    done = stepmill_command("demo", *QUICK)
    assert done.code == 1
    assert "different at step 3" in done.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["CartPol-v1"], "CartPole-v1"),
        (["--num-envs", 0], "--num-envs"),
        (["--seconds", 0], "--seconds"),
        (["--seconds", "nan"], "--seconds"),
        (["-o", "/"], "-o"),
    ],
)
def test_a_wrong_call_is_one_line(stepmill_command: Run, arguments: list[Any], said: str) -> None:
    done = stepmill_command("demo", *arguments)
    assert done.code == 2
    assert said in done.err
    assert done.err.count("\n") == 1


def test_ctrl_c_ends_it_with_what_there_is(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C when Gymnasium begins: by then stepmill has one round."""
    step = Contestant.run

    def interrupted(contestant: Contestant, calls: int) -> None:
        if not isinstance(contestant.envs, GymnasiumPool):
            raise KeyboardInterrupt
        step(contestant, calls)

    monkeypatch.setattr(Contestant, "run", interrupted)
    done = stepmill_command("demo", *QUICK, "--json")
    assert done.code == 130
    assert set(done.json["steps_per_second"]) == {"stepmill"}
    assert done.json["interrupted"]


def test_ctrl_c_before_anything_is_measured(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Contestant, "run", interrupted)
    done = stepmill_command("demo", *QUICK)
    assert (done.code, done.out, done.err.strip()) == (130, "", "stepmill: stopped")
