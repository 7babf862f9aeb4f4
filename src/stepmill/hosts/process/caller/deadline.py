"""How long the caller waits, and what ends the wait early."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterable
from typing import Any

from stepmill.hosts.process.wire import Wire

_GLANCE_S = 0.1
_MOST_S = 1e6  # what poll() takes, in milliseconds, is an int


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
    return {fd for fd, _ in poll.poll(None if seconds is None else min(seconds, _MOST_S) * 1000)}
