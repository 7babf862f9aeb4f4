"""Ctrl-C, which must not get lost.

Python raises KeyboardInterrupt wherever it happens to be. There a library may turn it into an error of its own, and in
a finalizer it is dropped. So it is noted as well, and long commands look at the note now and then.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self

__all__ = ["Interrupts", "check", "pressed"]

_pressed = False


class Interrupts:
    """Notes Ctrl-C while it is used in a ``with``."""

    def __enter__(self) -> Self:
        global _pressed
        _pressed = False
        self._before = signal.getsignal(signal.SIGINT)
        # Not where it is ignored, as for a command in the background; nor in another thread, which gets no signals.
        self._handles = callable(self._before) and threading.current_thread() is threading.main_thread()
        if self._handles:
            signal.signal(signal.SIGINT, _note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._handles:
            signal.signal(signal.SIGINT, self._before)


def pressed() -> bool:
    """Whether Ctrl-C was pressed since the command began."""
    return _pressed


def check() -> None:
    """Raises KeyboardInterrupt if Ctrl-C was pressed: again, if it got lost."""
    if _pressed:
        raise KeyboardInterrupt


def _note(number: int, frame: FrameType | None) -> None:
    global _pressed
    _pressed = True
    signal.default_int_handler(number, frame)
