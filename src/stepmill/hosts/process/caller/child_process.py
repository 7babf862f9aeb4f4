"""Our processes that fork others: ask them for a process, resume them after a SIGSTOP, end them."""

from __future__ import annotations

import contextlib
import itertools
import signal
from collections.abc import Callable, Sequence
from typing import Any

from stepmill.hosts.process.caller.deadline import Deadline, wait_for_any
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.process.stack import process_state
from stepmill.hosts.process.wire import DescriptorsLost, Wire, close_all
from stepmill.system.refusals import explained_refusals

END_S = 5.0  # our own processes end in milliseconds, or later if the machine is out of memory
_GLANCE_S = 0.1
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
    about: tuple[float, ...],
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
