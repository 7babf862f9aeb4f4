"""Pausing, stepping and slowing down a program that plays for the page: ``stepmill watch``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_FASTEST = 1000  # batches per second that a limit can have


class Control:
    """Says when the next batch may be played. The page turns it, the program waits for it.

    Attributes:
        paused: Whether it is paused.
        speed: Batches per second, at most; None: as fast as it goes.
    """

    def __init__(self, paused: bool = False, speed: float | None = None) -> None:
        self.paused, self.speed = paused, speed
        self._changed = threading.Condition()
        self._steps = 0  # that may be played although it is paused
        self._next = 0.0  # when the next batch is due
        self._nudged = False

    def turn(self, command: str, speed: float | None = None) -> bool:
        """Does what the user clicked: ``pause``, ``resume``, ``step`` (one batch, then a pause) or ``speed``.

        False if it is none of these.
        """
        with self._changed:
            if command == "pause":
                self.paused, self._steps = True, 0
            elif command == "resume":
                self.paused = False
            elif command == "step":
                self._steps = self._steps + 1 if self.paused else 1
                self.paused = True
            elif command == "speed" and (speed is None or 0 < speed <= _FASTEST):
                self.speed, self._next = speed, 0.0
            else:
                return False
            self._changed.notify_all()
            return True

    def nudge(self) -> None:
        """Somebody looks: a program that waits calls ``look``."""
        with self._changed:
            self._nudged = True
            self._changed.notify_all()

    def wait(self, look: Callable[[], None]) -> None:
        """Returns when the next batch may be played."""
        while not self._may_go_on():
            look()

    def _may_go_on(self) -> bool:
        """Waits; false if it was nudged meanwhile."""
        with self._changed:
            while True:
                if self._nudged and self.paused:
                    self._nudged = False
                    return False
                now = time.monotonic()
                if self.paused and self._steps:
                    self._steps -= 1
                    return True
                if not self.paused and (self.speed is None or now >= self._next):
                    self._next = 0.0 if self.speed is None else max(self._next, now) + 1 / self.speed
                    return True
                self._changed.wait(None if self.paused else self._next - now)
