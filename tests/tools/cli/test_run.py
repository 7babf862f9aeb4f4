"""``stepmill run``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize("batch_size", [4, 2])
def test_counts_steps_and_episodes(stepmill_command: Run, batch_size: int) -> None:
    done = stepmill_command("run", "CartPole-v1", "--num-envs", 4, "--steps", 400, "--batch-size", batch_size, "--json")
    assert done.code == 0
    found = done.json
    assert (found["id"], found["num_envs"], found["steps"], found["backend"]) == ("CartPole-v1", 4, 400, "thread")
    assert found["steps_per_second"] > found["steps_per_second_with_policy"] > 0
    assert found["return"] == found["length"]  # CartPole's reward is 1
    assert found["episodes"] > 0
    assert done.err == ""


def test_returns_that_are_no_numbers_are_texts(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("run", "my_envs.py:Boundless", "--num-envs", 1, "--steps", 12, "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["return"] == {"mean": "inf", "std": "nan", "min": "inf", "max": "inf"}
    done = stepmill_command("run", "my_envs.py:Boundless", "--num-envs", 1, "--steps", 12)
    assert (done.code, done.err) == (0, "")
    assert "inf ± nan" in done.out


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("policy", ["two", "many"])
def test_a_users_env_with_a_users_policy(stepmill_command: Run, user_folder: Path, backend: str, policy: str) -> None:
    arguments = ["--policy", f"my_envs.py:{policy}", "--backend", backend, "--set", "length=3"]
    done = stepmill_command("run", "my_envs.py:Counting", "--num-envs", 2, "--steps", 16, *arguments, "--json")
    assert done.code == 0, done.err
    assert done.json["return"] == {"mean": 6.0, "std": 0.0, "min": 6.0, "max": 6.0}
    assert done.json["length"]["max"] == 3
    assert done.json["episodes"] == 4


@pytest.mark.parametrize("batch_size", [2, 1])
def test_a_policy_with_a_memory_hears_of_episodes(stepmill_command: Run, user_folder: Path, batch_size: int) -> None:
    arguments = ["--num-envs", 2, "--batch-size", batch_size, "--steps", 40, "--policy", "my_envs.py:Alternating"]
    done = stepmill_command("run", "my_envs.py:Counting", *arguments, "--backend", "inline", "--json")
    assert done.code == 0, done.err
    assert done.json["return"]["min"] == done.json["return"]["max"] == 2.0  # 0, 1, 0, 1, 0


@pytest.mark.parametrize("function", ["one_env", "one_observation"])
def test_a_function_of_one_env_is_told_of_per_env(stepmill_command: Run, user_folder: Path, function: str) -> None:
    done = stepmill_command("run", "my_envs.py:Counting", "--policy", f"my_envs.py:{function}")
    assert (done.code, done.out) == (2, "")
    assert f"--policy my_envs.py:{function}: expected a function policy(observations, env_ids, generators)" in done.err
    assert f"got {function}(observation" in done.err
    assert "write stepmill.per_env(function)" in done.err


def test_a_module_is_found_in_the_working_directory(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("run", "my_envs:Counting", "--num-envs", 1, "--steps", 6, "--json")
    assert done.code == 0, done.err


def test_the_table_names_what_was_found(stepmill_command: Run) -> None:
    done = stepmill_command("run", "CartPole-v1", "--num-envs", 4, "--steps", 400)
    for word in ("CartPole-v1, 4 envs", "steps per second", "episodes", "return", "length"):
        assert word in done.out


def test_a_failing_env_is_exit_code_1(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("run", "my_envs.py:Failing", "--num-envs", 1, "--backend", "inline", "--steps", 6)
    assert done.code == 1
    assert "no more" in done.err


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_the_place_of_a_failure_is_named(stepmill_command: Run, user_folder: Path, backend: str) -> None:
    done = stepmill_command("run", "my_envs.py:Failing", "--num-envs", 1, "--backend", backend, "--steps", 6)
    line = 1 + (user_folder / "my_envs.py").read_text().splitlines().index('        raise RuntimeError("no more")')
    assert f"RuntimeError: no more ({user_folder / 'my_envs.py'}, line {line}, in step)\n" in done.err


@pytest.mark.parametrize(
    ("policy", "said"),
    [("confused", "ValueError: left or right? ("), ("leaving", "SystemExit: 0 (")],
)
def test_a_failing_policy_is_one_line_and_exit_code_1(
    stepmill_command: Run, user_folder: Path, policy: str, said: str
) -> None:
    done = stepmill_command("run", "CartPole-v1", "--policy", f"my_envs.py:{policy}", "--steps", 6)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"stepmill: the policy failed: {said}")
    assert done.err.count("\n") == 1


def test_what_a_module_prints_is_not_in_the_document(stepmill_command: Run, user_folder: Path) -> None:
    (user_folder / "my_talk.py").write_text("import os\nos.write(1, b'hello\\n')\nfrom my_envs import Counting\n")
    done = stepmill_command("run", "my_talk.py:Counting", "--num-envs", 1, "--steps", 6, "--json")
    assert done.json["steps"] == 6
    assert "hello" in done.err


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_what_an_env_prints_is_not_in_the_document(user_folder: Path, backend: str) -> None:
    command = [sys.executable, "-m", "stepmill", "run", "my_envs.py:Talking", "--backend", backend, "--json"]
    command += ["--num-envs", "1", "--steps", "6"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    assert json.loads(done.stdout)["steps"] == 6
    assert "a step\n" in done.stderr
    assert "from a program\n" in done.stderr


def test_ctrl_c_ends_it_with_what_there_is() -> None:
    command = [sys.executable, "-m", "stepmill", "run", "gymnasium:CartPole-v1", "--backend", "process", "--json"]
    command += ["--num-envs", "2", "--steps", "1000000000", "--policy", f"{__file__}:telling"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    assert child.stderr.readline() == "playing\n"
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=600)
    assert child.returncode == 130, err
    assert '"interrupted": true' in out


def telling(observations: Any, env_ids: Any, generators: Any) -> Any:
    """A policy that says when it is asked."""
    if not hasattr(telling, "told"):
        telling.told = True  # type: ignore[attr-defined]
        os.write(2, b"playing\n")
    return [0] * len(observations)
