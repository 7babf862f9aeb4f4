"""Waits, and hears the key that ends a live view."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from typing import Any, Self

__all__ = ["Keys"]


class Keys:
    """Reads single keys from the terminal while it is used in a ``with``; without a terminal it only waits.

    Attributes:
        ended: Whether ``q`` was pressed.
    """

    def __init__(self, live: bool) -> None:
        self._live = live and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
        self._before: list[Any] | None = None
        self.ended = False

    def wait(self, seconds: float) -> bool:
        """Waits; whether a key has ended the view."""
        end = time.monotonic() + seconds
        while not self.ended and (left := end - time.monotonic()) > 0:
            if self._before is None:
                time.sleep(left)
            elif select.select([sys.stdin], [], [], left)[0]:
                self.ended = os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b"")
        return self.ended

    def __enter__(self) -> Self:
        if self._live:
            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(sys.stdin)
                tty.setcbreak(sys.stdin)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)
