"""Pausing, stepping and slowing down a program that plays for the page: ``stepmill watch``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Control:
    """Says when the next batch may be played. The page turns it, the program waits for it.

    Args:
        paused: Whether it starts paused.
        speed: Batches per second, at most; None: as fast as it goes.
    """

    def __init__(self, paused: bool = False, speed: float | None = None) -> None:
        self._changed = threading.Condition()
        self._paused = paused
        self._steps = 0  # that may be played although it is paused
        self._speed = speed
        self._next = 0.0  # when the next batch is due
        self._nudged = False

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self._paused

    @property
    def speed(self) -> float | None:
        """Batches per second, at most; None: as fast as it goes."""
        return self._speed

    def pause(self) -> None:
        """The program waits before its next batch."""
        with self._changed:
            self._paused, self._steps = True, 0
            self._changed.notify_all()

    def resume(self) -> None:
        """The program goes on."""
        with self._changed:
            self._paused = False
            self._changed.notify_all()

    def step(self) -> None:
        """The program plays one batch, and is paused then."""
        with self._changed:
            self._steps = self._steps + 1 if self._paused else 1
            self._paused = True
            self._changed.notify_all()

    def set_speed(self, speed: float | None) -> None:
        """Sets how many batches per second are played, at most."""
        with self._changed:
            self._speed, self._next = speed, 0.0
            self._changed.notify_all()

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
                if self._nudged and self._paused:
                    self._nudged = False
                    return False
                now = time.monotonic()
                if self._paused and self._steps:
                    self._steps -= 1
                    return True
                if not self._paused and (self._speed is None or now >= self._next):
                    self._next = 0.0 if self._speed is None else max(self._next, now) + 1 / self._speed
                    return True
                self._changed.wait(None if self._paused else self._next - now)
