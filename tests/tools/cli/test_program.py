"""What all commands share: help, exit codes, one line per error."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.tools.cli import entry
from stepmill.tools.cli.program import COMMANDS

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


@pytest.mark.parametrize("command", ["check", "tune"])
@pytest.mark.parametrize(
    ("env", "said"),
    [
        ("Quitting", "my_envs.py:Quitting ended its process with exit code 3: it calls os._exit"),
        ("Crashing", "the process of my_envs.py:Crashing was ended by SIGKILL"),
    ],
)
def test_an_env_that_ends_its_process_is_named(
    stepmill_command: Run, user_folder: Path, command: str, env: str, said: str
) -> None:
    done = stepmill_command(command, f"my_envs.py:{env}", "--json")
    assert (done.code, done.out) == (1, "")
    assert said in done.err


@pytest.mark.parametrize("name", ["[red]a[/red]", "[/red]", "[bold]", ":smile:"])
def test_what_users_write_is_no_markup(
    stepmill_command: Run, user_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    (user_folder / name).mkdir(parents=True)
    (user_folder / "my_envs.py").rename(user_folder / name / "my_envs.py")
    done = stepmill_command("run", f"{name}/my_envs.py:Counting", "--num-envs", 1, "--steps", 6)
    assert done.code == 0, done.err
    assert f"{name}/my_envs.py:Counting, 1 envs" in done.out
    done = stepmill_command("tune", f"{name}/my_envs.py:Counting", "--num-envs", 1, "--seconds", 0.001)
    assert done.code == 0, done.err
    assert f"{name}/my_envs.py:Counting: steps per second" in done.out


def test_python_m_runs_the_same_program() -> None:
    command = [sys.executable, "-m", "stepmill", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
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
        (["run", "os:PathLik"], "os has no PathLik, did you mean PathLike?"),
        (["run", "no_such_module:Env"], "there is no module 'no_such_module' here"),
        (["tune", "CartPole-v1", "-o", "plot.docx"], "-o plot.docx: expected a name that ends with .png, .svg, .pdf"),
        (["tune", "CartPole-v1", "-o", "/dev/null/plot.png"], "cannot write to /dev/null"),
        (["demo", "-o", "/dev/null/plot.png"], "cannot write to /dev/null"),
        (["bench", "-o", "/dev/null/plots"], "cannot write to /dev/null"),
        (["record", "CartPole-v1", "-o", "/dev/null/videos"], "cannot write to /dev/null"),
        (["top", "--interval", "inf"], "inf is not in the range"),
        (["watch", "CartPole-v1", "--speed", "nan"], "nan is not in the range"),
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
    code = "import sys; sys.modules['click'] = None; from stepmill.tools.cli.entry import main; sys.exit(main([]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 2
    assert "pip install 'stepmill[cli]'" in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "stepmill", "run", "CartPole-v1", "--steps", "10", "--json"]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=600)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("json", [[], ["--json"]])
def test_a_closed_stdout_is_no_error(json: list[str]) -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "stepmill", "info", "CartPole-v1", *json]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "stepmill", "info", "CartPole-v1"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=600)
    assert done.returncode == 1
    assert done.stderr == "stepmill: the result cannot be written: No space left on device\n"


def test_a_terminal_that_lacks_some_characters() -> None:
    command = [sys.executable, "-m", "stepmill", "run", "CartPole-v1", "--steps", "1000"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "steps per second" in done.stdout


def test_without_a_command_it_shows_its_help(stepmill_command: Run) -> None:
    done = stepmill_command()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("Usage: stepmill")
    assert "\n  run " in done.err


def test_a_warning_is_one_line_without_the_code_that_warns(stepmill_command: Run, user_folder: Path) -> None:
    (user_folder / "my_warning.py").write_text("import warnings\nwarnings.warn('it is\\nlate', stacklevel=1)\n")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        done = stepmill_command("info", "my_warning.py:Env")
    assert done.err.splitlines() == ["stepmill: it is late", "stepmill: my_warning.py has no Env"]


def test_a_module_that_cannot_be_imported_says_where(stepmill_command: Run, user_folder: Path) -> None:
    (user_folder / "my_typo.py").write_text("import os\n\nos.getcwdd()\n")
    done = stepmill_command("info", "my_typo.py:Env")
    assert done.code == 2
    assert "AttributeError" in done.err
    assert "my_typo.py, line 3, in <module>)\n" in done.err


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
    done = subprocess.run(
        command, env={**os.environ, **asked}, capture_output=True, text=True, check=False, timeout=600
    )
    assert {line.partition(",")[2] for line in done.stdout.splitlines()} == found, done.stderr
