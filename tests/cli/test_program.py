"""What all commands share: help, exit codes, one line per error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.cli import entry
from stepmill.cli.program import COMMANDS

Run = Callable[..., Any]


def test_every_command_has_a_file_and_a_help_text(stepmill_command: Run) -> None:
    folder = Path(entry.__file__).parent / "commands"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert files == set(COMMANDS)
    for name in COMMANDS:
        done = stepmill_command(name, "--help")
        assert done.code == 0
        assert done.out.startswith(f"Usage: stepmill {name}")


def test_the_version_is_that_of_the_package(stepmill_command: Run) -> None:
    assert stepmill_command("--version").out == f"stepmill {stepmill.__version__}\n"


def test_python_m_runs_the_same_program() -> None:
    command = [sys.executable, "-m", "stepmill", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"stepmill {stepmill.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["runs"], "No such command 'runs'"),
        (["run"], "Missing argument 'ID|MODULE:ENV'"),
        (["run", "CartPole-v1", "--num-env", "3"], "No such option"),
        (["run", "CartPole-v1", "--num-envs", "0"], "0 is not in the range"),
        (["run", "Cartpole-v9"], "did you mean CartPole-v1"),
        (["run", "CartPole-v1", "--set", "gravity=3"], "has no config key 'gravity'"),
        (["run", "CartPole-v1", "--set", "gravity"], "--set: expected NAME=VALUE"),
        (["run", "nowhere.py:Env"], "nowhere.py: there is no such file"),
        (["run", "os:PathLik"], "PathLik"),
        (["run", "CartPole-v1", "--policy", "act"], "expected 'random', or a policy"),
        (["run", "CartPole-v1", "--policy", "os:getcw"], "did you mean getcwd?"),
    ],
)
def test_a_wrong_call_is_one_line_and_exit_code_2(stepmill_command: Run, arguments: list[str], said: str) -> None:
    done = stepmill_command(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert said in done.err
    assert done.err.startswith("stepmill: ")
    assert done.err.count("\n") == 1


def test_without_the_extra_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['click'] = None; from stepmill.cli.entry import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "pip install 'stepmill[cli]'" in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "stepmill", "run", "CartPole-v1", "--steps", "10", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("stepmill ru", {"run"}),
        ("stepmill run CartPol", {"CartPole-v0", "CartPole-v1"}),
        ("stepmill run --js", {"--json"}),
    ],
)
def test_the_shell_completes_commands_options_and_ids(words: str, found: set[str]) -> None:
    count = str(len(words.split()) - 1)
    asked = {"_STEPMILL_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    command = [sys.executable, "-m", "stepmill"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False, timeout=60)
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == found, done.stderr
