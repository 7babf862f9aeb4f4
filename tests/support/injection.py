"""Exceptions of signal handlers, at every point where CPython would run one: chosen, not left to a timer.

A handler runs when a Python function begins, after a call of something that is not a Python function, and when a loop
goes round. ``Alarms`` raises at the n-th of these points. Code of tests is left out: what is raised in an env is that
env's failure, by contract, and what is raised in the caller's own code no concern of ours.
"""

from __future__ import annotations

import contextlib
import dis
import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from stepmill.hosts.inline_host import InlineHost


class Alarm(TimeoutError):
    """What the handler raises."""


class Alarms:
    """Raises an ``Alarm``, or what is given, at the n-th point of the code inside of the block."""

    def __init__(self, n: int, *test_files: str, raising: Callable[[str], BaseException] = Alarm) -> None:
        self.n = n
        self._raising = raising
        self.points = 0
        self._test_files = test_files
        self._last: dict[FrameType, int] = {}  # the instruction that each frame did last
        self._called_python: set[FrameType] = set()

    def __enter__(self) -> Alarms:
        gc.disable()  # it calls functions of others, at moments that nobody chose
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()
        self._last.clear()  # frames hold all that is in them
        self._called_python.clear()

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if frame.f_code.co_filename in (__file__, *self._test_files) or self._is_of_an_env(frame):
                return None
            frame.f_trace_opcodes = True
            if frame.f_back is not None:
                self._called_python.add(frame.f_back)
            self._point()
        elif event == "exception":  # the call did not return: handlers have to wait
            self._last.pop(frame, None)
        elif event == "opcode":
            last = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            called_python = frame in self._called_python
            self._called_python.discard(frame)
            if last is not None and _may_run_handlers(frame, last, called_python):
                self._point()
        return self._trace

    def _is_of_an_env(self, frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_name in ("objects_of", "snapshot"):  # of what an env gave, with its code
                return True
            if code.co_filename in self._test_files and code.co_name in ("step", "reset"):
                return True
            frame = frame.f_back
        return False

    def _point(self) -> None:
        self.points += 1
        if self.points == self.n:
            sys.settrace(None)
            raise self._raising(f"point {self.n}")


def _may_run_handlers(frame: FrameType, last: int, called_python: bool) -> bool:
    name = dis.opname[frame.f_code.co_code[last]]
    if name == "JUMP_BACKWARD":
        return True
    if not name.startswith("CALL"):
        return False
    return name.startswith("CALL_FUNCTION_EX") or not called_python


def at_every_point(
    attempt: Callable[[Alarms], None],
    *test_files: str,
    raising: Callable[[str], BaseException] = Alarm,
    stride: int = 1,
) -> int:
    """Calls ``attempt`` with an alarm at the first point, the second, and so on. Returns how many there are.

    A larger ``stride`` leaves points out, for calls that have thousands.
    """
    n = 0
    while True:
        alarms = Alarms(n + 1, *test_files, raising=raising)
        attempt(alarms)
        if alarms.points <= n:
            return n
        n += stride


@contextlib.contextmanager
def late_interrupts() -> Iterator[None]:
    """Meanwhile every restore of inline envs is interrupted by a signal handler, and they have their states."""
    load_envs = InlineHost.load_envs

    def load(*arguments: Any) -> BaseException:
        load_envs(*arguments)
        return KeyboardInterrupt()  # a handler has raised meanwhile

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(InlineHost, "load_envs", load)
        yield
