"""Ctrl-C that gets lost on its way, or hits before a command has begun."""

from __future__ import annotations

import gc
import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from stepmill.tools.cli import interrupts
from stepmill.tools.cli.terminal import Terminal, until_interrupted

Run = Callable[..., Any]


def swallow() -> None:
    """A library that drops it."""
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_lost_one_ends_the_command_at_its_next_step() -> None:
    with interrupts.Interrupts(), until_interrupted() as ending, Terminal().progress("playing", None) as bar:
        bar.add(1)
        swallow()
        bar.add(1)
        pytest.fail("it was not noticed")
    assert ending.code == 130
    assert not interrupts.pressed()  # it was that command's


class Finalized:
    """Is hit by it where Python drops it."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("deadline")
def test_one_that_python_drops_comes_again() -> None:
    with interrupts.Interrupts(), until_interrupted() as ending:
        Finalized()
        threading.Event().wait()
    assert ending.interrupted


def test_what_fails_because_of_it_is_no_error() -> None:
    with interrupts.Interrupts(), until_interrupted() as ending:
        swallow()
        raise BrokenPipeError("a process of another library is gone")
    assert ending.interrupted


def test_what_fails_without_it_is_an_error() -> None:
    with interrupts.Interrupts(), pytest.raises(BrokenPipeError), until_interrupted():
        raise BrokenPipeError("really")


def test_a_command_leaves_the_handlers_as_they_were(stepmill_command: Run) -> None:
    before = signal.getsignal(signal.SIGINT), sys.unraisablehook
    stepmill_command("--version")
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == before


class Unfinished:
    """An object in a cycle, whose finalizer fails."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        raise EOFError("its process is gone")


@pytest.mark.parametrize("pressed", [False, True])
def test_finalizers_that_fail_because_of_it_say_nothing(monkeypatch: pytest.MonkeyPatch, pressed: bool) -> None:
    gc.collect()
    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda failure: heard.append(failure.exc_value))
    with interrupts.Interrupts():
        Unfinished()
        if pressed:
            swallow()
    gc.collect()
    assert [type(one) for one in heard] == ([] if pressed else [EOFError])


def test_kill_ends_a_process_that_another_library_has_forked() -> None:
    with interrupts.Interrupts():
        child = os.fork()
        if child == 0:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM


def test_a_library_that_turns_it_into_an_error_of_its_own(
    stepmill_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stepmill.tools.measuring import peers

    def broken(*_: object) -> Any:
        swallow()
        raise BrokenPipeError("its processes are gone")

    monkeypatch.setattr(peers, "build_gymnasium", broken)
    done = stepmill_command("bench", "CartPole-v1", "--seconds", 0.01, "--repeats", 1, "--json")
    assert done.code == 130
    assert (done.json["interrupted"], done.json["envs"][0]["failed"]) == (True, {})


@pytest.mark.parametrize("width", [40, 60, 120])
def test_a_bar_leaves_room_for_what_the_terminal_writes(width: int) -> None:
    """With a full line, the ^C goes to the next one, and the bar is still to be seen after it is erased."""
    terminal, written = Terminal(), io.StringIO()
    terminal.notes, terminal.draws = Console(file=written, force_terminal=True, width=width), True
    with terminal.progress("an env with a name that is quite long", 10, "measurements") as bar:
        bar.add(1, "what is done in this moment, in many words")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.getvalue())
    assert "an env" in text
    assert max(len(line) for line in re.split(r"[\r\n]", text)) <= width - len("^C")


def test_before_a_command_has_begun(tmp_path: Path) -> None:
    """An import in which it is pressed, and a finalizer in which Python drops it."""
    (tmp_path / "click.py").write_text(
        "import signal\nclass Lost:\n    def __del__(self):\n        signal.raise_signal(signal.SIGINT)\nLost()\n"
    )
    code = "import sys; from stepmill_command import main; sys.exit(main())"
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", code, "list"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
