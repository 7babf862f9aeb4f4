"""How long the caller waits, and what ends the waiting early."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from typing import Any

from stepmill.pool.process.wire import Wire

__all__ = ["Cancelled", "Deadline", "wait_for_any"]

_GLANCE_S = 0.1
_MOST_S = 1e6  # what poll() takes, in milliseconds, is an int


class Cancelled(Exception):
    """The caller does not want the result any more."""


class Deadline:
    """So many seconds from now, and a descriptor that becomes readable when the caller gives up."""

    def __init__(self, seconds: float | None, cancel_fd: int | None = None) -> None:
        self.seconds = seconds
        self.began = time.monotonic()
        self._cancel_fd = cancel_fd

    @property
    def elapsed(self) -> float:
        """Seconds since the waiting began."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float | None:
        """Seconds until the deadline; None where there is none."""
        return None if self.seconds is None else max(self.seconds - self.elapsed, 0.0)

    def wait(self, fds: Iterable[int], at_most: float | None = None) -> set[int]:
        """Those that are ready to be read; none after ``at_most`` seconds. The deadline is a ``TimeoutError``."""
        left = self.left
        if left == 0.0:
            raise TimeoutError(f"{self.seconds} s have passed")
        limits = [limit for limit in (left, at_most) if limit is not None]
        ready = wait_for_any([*fds, *self._cancel_fds], min(limits, default=None))
        if ready.intersection(self._cancel_fds):
            raise Cancelled
        return ready

    def receive(self, wire: Wire, meanwhile: Callable[[], None] | None = None) -> tuple[Any, list[int]]:
        """The next message of a wire. Those we wait for send theirs whole. ``meanwhile`` is called now and then."""
        while not self.wait([wire.fileno()], None if meanwhile is None else _GLANCE_S):
            if meanwhile is not None:
                meanwhile()
        return wire.recv(self.left)

    @property
    def _cancel_fds(self) -> list[int]:
        return [] if self._cancel_fd is None else [self._cancel_fd]


def wait_for_any(fds: Iterable[int], seconds: float | None) -> set[int]:
    """Waits until one can be read, or is at its end, and returns all that are; at most some days."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if seconds is None else min(seconds, _MOST_S) * 1000)}
