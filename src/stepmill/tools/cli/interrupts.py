"""Ctrl-C, which must not get lost; ``kill`` and a terminal that is closed end a command in the same way.

Python raises KeyboardInterrupt wherever it happens to be. There a library may turn it into an error of its own: so it
is noted as well, and long commands look at the note now and then. In a finalizer, and in what runs around a
fork, Python drops it: then it comes again a moment later.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FROM_PARENT = signal.SIGRTMIN  # passed on by a parent; of pending ones, Python handles the lower numbers first

INTERRUPTED = 130  # the exit code
_AGAIN_S = 0.02

_pressed = False
_current: Interrupts | None = None


class Interrupts:
    """Notes Ctrl-C while it is used in a ``with``.

    Finalizers that fail after it say nothing, such as those of a library whose processes it has ended too: what fails
    then, fails because of that.
    """

    def __enter__(self) -> Self:
        global _pressed, _current
        _pressed = False
        _current = self
        self._pid = os.getpid()
        self._before: dict[signal.Signals, Any] = {}
        self._again: threading.Timer | None = None
        self._ended = False
        self._hook = sys.unraisablehook
        sys.unraisablehook = self._hear_of_failure
        if threading.current_thread() is threading.main_thread():  # no other one gets signals
            for one in _SIGNALS:
                before = signal.getsignal(one)
                if callable(before) or before is signal.SIG_DFL:  # not ignored, as with nohup or in the background
                    self._before[one] = before
                    signal.signal(one, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        global _pressed
        self._ended = True
        if self._again is not None:
            self._again.cancel()
            self._again.join()
        if _pressed:
            gc.collect()  # what it left half done is finalized now
        _pressed = False
        sys.unraisablehook = self._hook
        for one, before in self._before.items():
            signal.signal(one, before)

    def _hear_of_failure(self, failure: Any) -> None:
        if not _pressed:
            self._hook(failure)
        elif isinstance(failure.exc_value, KeyboardInterrupt) and os.getpid() == self._pid:
            main = threading.main_thread().ident
            self._again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main, signal.SIGINT))
            self._again.daemon = True
            self._again.start()

    def _note(self, number: int, _: FrameType | None) -> None:
        global _pressed
        if os.getpid() != self._pid and number != signal.SIGINT:  # another library's process, which it ends like this
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        _pressed = True
        if not self._ended:
            raise KeyboardInterrupt

    def listen_to_parent(self) -> None:
        """See the function of that name."""
        self._pid = os.getpid()
        signal.signal(FROM_PARENT, lambda *given: None if _pressed else self._note(*given))


def listen_to_parent() -> None:
    """For a child that does the work: what its parent passes on counts, unless the terminal has sent it to both."""
    if _current is not None:
        _current.listen_to_parent()


def pressed() -> bool:
    """Whether Ctrl-C was pressed since the command began."""
    return _pressed


def check() -> None:
    """Raises KeyboardInterrupt if Ctrl-C was pressed: again, if it got lost."""
    if _pressed:
        raise KeyboardInterrupt
