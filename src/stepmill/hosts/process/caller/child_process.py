"""Our processes that fork others: wait for them, ask them for a process, resume them after a SIGSTOP, end them."""

from __future__ import annotations

import contextlib
import itertools
import select
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.process.stack import process_state
from stepmill.hosts.process.wire import MOST_S, DescriptorsLost, Wire, close_all
from stepmill.system.refusals import explained_refusals

# ---- waiting -------------------------------------------------------------------------------------

_GLANCE_S = 0.1


class CancelledWait(Exception):
    """The caller no longer wants the result."""


class Deadline:
    """A time limit from now, with a descriptor that becomes readable when the caller gives up."""

    def __init__(self, seconds: float | None, cancel_fd: int | None = None) -> None:
        self.seconds = seconds
        self.began = time.monotonic()
        self._cancel_fd = cancel_fd

    @property
    def elapsed(self) -> float:
        """Seconds since the deadline was made."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        return None if self.seconds is None else max(self.seconds - self.elapsed, 0.0)

    def wait(self, fds: Iterable[int], at_most: float | None = None) -> set[int]:
        """The descriptors that can be read; none after ``at_most`` seconds. Raises ``TimeoutError`` at the deadline."""
        left = self.left
        if left == 0.0:
            raise TimeoutError(f"{self.seconds} s have passed")
        limits = [limit for limit in (left, at_most) if limit is not None]
        ready = wait_for_any([*fds, *self._cancel_fds], min(limits, default=None))
        if ready.intersection(self._cancel_fds):
            raise CancelledWait
        return ready

    def receive(self, wire: Wire, meanwhile: Callable[[], None] | None = None) -> tuple[Any, list[int]]:
        """The next message of a wire; its sender sends it at once. ``meanwhile`` is called now and then."""
        while not self.wait([wire.fileno()], None if meanwhile is None else _GLANCE_S):
            if meanwhile is not None:
                meanwhile()
        return wire.recv(self.left)

    @property
    def _cancel_fds(self) -> list[int]:
        return [] if self._cancel_fd is None else [self._cancel_fd]


def wait_for_any(fds: Iterable[int], seconds: float | None) -> set[int]:
    """Waits until a descriptor can be read or is at its end, at most some days, and returns all such descriptors."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if seconds is None else min(seconds, MOST_S) * 1000)}


# ---- asking and ending ---------------------------------------------------------------------------

END_S = 5.0  # our own processes end in milliseconds, or later if the machine is out of memory
_serials = itertools.count(1)


def is_over(pidfd: int, seconds: float = 0.0) -> bool:
    """Whether a process has ended, or ends within ``seconds``."""
    return bool(wait_for_any([pidfd], seconds))


def kill(pidfd: int) -> None:
    """Sends SIGKILL, which no process survives."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def resume(pid: int, pidfd: int) -> None:
    """Resumes one of our processes if it was stopped (SIGSTOP): we would wait for its answer forever."""
    if process_state(pid) == "T":
        with contextlib.suppress(OSError):  # it is gone
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)


def ends(pid: int, pidfd: int) -> bool:
    """Waits for a process that was told to end; whether it did."""
    deadline = Deadline(END_S)
    with contextlib.suppress(TimeoutError):
        while not deadline.wait([pidfd], _GLANCE_S):
            resume(pid, pidfd)
        return True
    return False


def ask_for_process(
    wire: Wire,
    kind: str,
    about: tuple[int, ...],
    fds: Sequence[int],
    deadline: Deadline,
    meanwhile: Callable[[], None],
) -> tuple[int, int]:
    """Asks for a process: its pid and pidfd."""
    kind, answer, received = ask(wire, kind, about, fds, deadline, meanwhile)
    if kind == "refused":
        with explained_refusals("a worker process could not be started"):
            raise rebuild(answer)
    return answer, received[0]


def ask(
    wire: Wire,
    kind: str,
    about: tuple[object, ...],
    fds: Sequence[int],
    deadline: Deadline,
    meanwhile: Callable[[], None],
) -> tuple[str, Any, list[int]]:
    """Sends a request and returns the answer to it: of which kind it is, what it says, its descriptors."""
    serial = next(_serials)
    wire.send((kind, serial, *about), fds, deadline.left)
    while True:
        try:
            (kind, answered, answer), received = deadline.receive(wire, meanwhile)
        except DescriptorsLost as lost:  # if it is our answer, the process ends as soon as its wire is closed
            if lost.message[1] == serial:
                raise
            continue
        if answered == serial:
            return kind, answer, received
        close_all(received)  # the answer to a call that gave up waiting
