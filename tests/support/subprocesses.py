"""Runs a piece of Python in a process of its own, for what could kill or hang the one that tests.

``run`` waits for the end; ``start`` gives a process to talk with. Both kill it at a deadline, so that a hang is
a failure and never a stuck test run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import stepmill

DEADLINE = 300.0  # seconds; for a machine under load, not for the code


@dataclass(frozen=True)
class Finished:
    """How a process ended. ``code`` is negative for a signal, None where the deadline ended it."""

    code: int | None
    out: str
    err: str


def run(code: str, *, flags: Sequence[str] = (), deadline: float = DEADLINE, leak_warnings: bool = True) -> Finished:
    """Runs ``code`` to its end. ``leak_warnings``: objects of the native module that are left are told on stderr."""
    process = _popen(code, flags, leak_warnings)
    try:
        out, err = process.communicate(timeout=deadline)
    except subprocess.TimeoutExpired:
        _kill(process)
        out, err = process.communicate()
        return Finished(None, out, err)
    return Finished(process.returncode, out, err)


def run_well(code: str, *, flags: Sequence[str] = (), deadline: float = DEADLINE) -> str:
    """Runs ``code``, asserts that it ended with code 0 and nothing on stderr, and returns what it printed."""
    finished = run(code, flags=flags, deadline=deadline)
    assert (finished.code, finished.err) == (0, ""), finished
    return finished.out


@contextmanager
def start(code: str, *, deadline: float = DEADLINE) -> Iterator[subprocess.Popen[str]]:
    """A process with pipes for stdin, stdout and stderr. It is gone when the block ends."""
    process = _popen(code, ())
    alarm = threading.Timer(deadline, _kill, [process])
    alarm.start()
    try:
        yield process
    finally:
        alarm.cancel()
        _kill(process)
        process.communicate()


def _popen(code: str, flags: Sequence[str], leak_warnings: bool = True) -> subprocess.Popen[str]:
    here = [str(Path(__file__).parents[1]), str(Path(stepmill.__file__).parents[1])]
    path = os.pathsep.join([*here, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-W", "error", *flags, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **({"STEPMILL_LEAK_WARNINGS": "1"} if leak_warnings else {})},
        start_new_session=True,  # so that its forked children can be killed with it
    )


def _kill(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
