"""Waiting, in tests and in envs: until something is so, at a gate, in a thread, inside a pool.

Workers import this module for their gates, so it is quick to import.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import gc
import os
import select
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from stepmill.errors import ConcurrentUseError

DEADLINE = 120.0  # seconds; for a machine under load, not for the code


@contextlib.contextmanager
def no_hang(seconds: float = 2 * DEADLINE) -> Iterator[None]:
    """Raises in the main thread what would otherwise wait forever: every wait of a pool looks for signals."""

    def too_late(*_: object) -> NoReturn:
        raise AssertionError(f"the test still waits after {seconds} s")

    old = signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


def eventually(condition: Callable[[], object], seconds: float = DEADLINE) -> bool:
    """Whether the condition comes true: for what the kernel, a thread or another process does in its own time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)  # what is waited for may need this core
    return True


def ends(pid: int, seconds: float = DEADLINE) -> bool:
    """Whether a process ends, of whomever it is the child."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], seconds)[0])
    finally:
        os.close(pidfd)


class Gate:
    """Tells when envs meet their mishaps, and holds them back where that is the mishap. Named pipes in a folder."""

    def __init__(self, folder: Path, num_envs: int) -> None:
        self.folder = folder
        self._paths = [folder / "arrived", *(folder / f"open-{env_id}" for env_id in range(num_envs))]
        for path in self._paths:
            os.mkfifo(path)
        # For both reading and writing: neither end waits for the other.
        self._arrived, *self._opened = (os.open(path, os.O_RDWR) for path in self._paths)

    def wait(self) -> int:
        """The next env that meets its mishap."""
        assert select.select([self._arrived], [], [], DEADLINE)[0], "no env came to the gate"
        return os.read(self._arrived, 1)[0]

    @property
    def num_arrivals(self) -> int:
        """How many envs have come that no test has waited for yet."""
        found = array.array("i", [0])
        fcntl.ioctl(self._arrived, termios.FIONREAD, found)
        return found[0]

    def open(self, env_id: int) -> None:
        """Lets one step of that env through."""
        os.write(self._opened[env_id], b"x")

    def close(self) -> None:
        """Lets everybody through, now and later."""
        for path in self._paths:
            path.unlink()
        for fd in (self._arrived, *self._opened):
            os.close(fd)


class GateClock:
    """In place of ``time`` where the deadline of a start is kept: it stands still until ``arrivals`` envs have come to
    the gate, and the pool waits for nothing but envs that are being built.

    Then the stack of a worker is read until it shows that the worker waits there, or is in a function that never ends:
    on a machine under load the usual half second may be too short, and an env says that it is there before it is.
    """

    @classmethod
    def put(cls, monkeypatch: Any, gate: Gate, arrivals: int = 1) -> None:
        from stepmill.hosts.process.caller import child_process, handles, launcher

        clock, wait_until_built, read_stack = cls(gate, arrivals), launcher.wait_until_built, handles.read_stack

        def wait(*arguments: Any) -> None:
            clock._is_running = True  # not while a worker is forked: it may come to the gate before we know of it
            wait_until_built(*arguments)

        def read(*arguments: Any) -> str:
            texts = []

            def is_there() -> bool:
                texts.append(read_stack(*arguments))
                return "_forever" in texts[-1] or "wait_at_gate" in texts[-1]

            eventually(is_there)
            return texts[-1]

        monkeypatch.setattr(child_process, "time", clock)
        monkeypatch.setattr(launcher, "wait_until_built", wait)
        monkeypatch.setattr(handles, "read_stack", read)

    def __init__(self, gate: Gate, arrivals: int) -> None:
        self._gate = gate
        self._arrivals = arrivals
        self._is_running = False
        self._looks = 0  # since they came

    def monotonic(self) -> float:
        """Late after some looks more: what the envs' workers have said before has been heard by then."""
        self._looks += self._is_running and self._gate.num_arrivals >= self._arrivals
        return 1e9 if self._looks > 8 else 0.0


def tell_gate(folder: str, env_id: int) -> None:
    """In an env: says that it is there. Nothing happens where there is no gate, or none any more."""
    with contextlib.suppress(FileNotFoundError):
        arrived = os.open(f"{folder}/arrived", os.O_RDWR)
        os.write(arrived, bytes([env_id]))
        os.close(arrived)


def wait_at_gate(folder: str, env_id: int) -> None:
    """In an env: blocks in a system call until the test opens the gate."""
    with contextlib.suppress(FileNotFoundError):
        opened = os.open(f"{folder}/open-{env_id}", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(opened, True)
        os.read(opened, 1)
        os.close(opened)


def in_thread(function: Any) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def wait_until_inside(pool: Any) -> None:
    """Returns when another thread is inside the pool."""
    while True:
        try:
            pool.stats()
        except ConcurrentUseError:
            return
        os.sched_yield()


def doing(function: Callable[[], Any]) -> Callable[[], None]:
    """Does something beside the test; call what it returns to join."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    thread = in_thread(run)

    def join() -> None:
        thread.join()
        if raised:
            raise raised[0]

    return join


class Struck(Exception):
    """What a signal handler raised."""


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Python drops what a handler raises inside a finalizer, and a collection may run those of earlier tests."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def struck_inside(pool: Any, gate: Gate | None = None) -> Iterator[None]:
    """The block has to wait inside the pool, until a signal handler raises there: as Ctrl-C does.

    With a ``gate``, not before an env has come to it: a call is under way only then.
    """

    def strike() -> None:
        if gate is not None:
            gate.wait()
        wait_until_inside(pool)
        os.kill(os.getpid(), signal.SIGUSR1)

    def handle(*_: object) -> None:
        raise Struck

    old = signal.signal(signal.SIGUSR1, handle)
    thread = in_thread(strike)
    try:
        with no_garbage_collection():
            yield
    except Struck:
        return
    else:
        raise AssertionError("no handler raised while the block waited")
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, old)
