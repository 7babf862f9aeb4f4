"""Runs work that no signal handler may interrupt."""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["uninterrupted"]

R = TypeVar("R")


def uninterrupted(work: Callable[[int | None], R]) -> R:
    """Runs ``work`` where no signal handler can raise, so that it never loses what it has just opened.

    Handlers run in the main thread, so the work runs in another one while the main thread waits. If a handler raises
    here, above all KeyboardInterrupt, the work is cancelled, and we wait until it has cleaned up. ``work`` is passed a
    descriptor, if one is available, that becomes readable when it is cancelled.
    """
    task = _Task(work)
    raised: BaseException | None = None
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
        task.run()
        return task.outcome()
    try:
        task.start()
    except RuntimeError:  # no thread is available: no more are allowed, or the interpreter is shutting down
        task.run()
        return task.outcome()
    except BaseException as error:
        if task.decide():  # it has not started, and now never will
            raise
        task.cancel()
        raised = error
    while not task.is_over:
        try:
            # Neither join() nor an Event: once interrupted, join() believes that the thread has ended (Python 3.11),
            # and an Event can be left locked.
            task.wait()
        except BaseException as error:
            task.cancel()
            raised = raised or error
    if raised is not None:
        raise raised
    task.run()  # does nothing, unless the thread had no memory to start: the work may have something to close
    return task.outcome()


class _Token:
    """Lives as long as the thread that it was passed to."""


class _Task(Generic[R]):
    is_over = False

    def __init__(self, work: Callable[[int | None], R]) -> None:
        self._work = work
        self._results: list[R] = []
        self._error: BaseException | None = None
        self._decision: dict[str, object] = {}
        self._lock = threading.Lock()
        self._cancel_fd: int | None = None
        self._is_cancelled = False
        self._ended: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._watch: weakref.ref[_Token] | None = None

    def start(self) -> None:
        """Runs it in a thread. Not a ``threading.Thread``: if that finds no memory, its ``start`` never returns."""
        _thread.start_new_thread(self._run_with, self._new_token())

    def _new_token(self) -> tuple[_Token]:
        token = _Token()
        try:
            self._watch = weakref.ref(token, self._end)
            return (token,)
        finally:
            del token  # our frame may live on, in the traceback of what a signal handler raises

    def _end(self, _: object) -> None:
        """Called by the thread that ends. The one that waits might lose what it has just taken out of the queue."""
        self.is_over = True
        self._ended.put(None)

    def wait(self) -> None:
        """Waits until the thread has ended, for whatever reason."""
        self._ended.get()

    def decide(self) -> bool:
        """Whether this call is the first, and so decides what happens to the work."""
        mine = object()
        return self._decision.setdefault("made", mine) is mine  # checks and sets in one step

    def _run_with(self, token: _Token) -> None:
        del token  # the interpreter holds it until the thread ends; this frame, in a traceback, might live longer
        self.run()

    def run(self) -> None:
        """Does the work, unless it was done or decided against before."""
        if not self.decide():
            return
        try:
            with self._lock, contextlib.suppress(OSError):  # no descriptor is left: closing must work without one
                self._cancel_fd = os.eventfd(int(self._is_cancelled), os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._results.append(self._work(self._cancel_fd))
        except BaseException as error:  # raised again in the thread that waits
            self._error = error
        with self._lock:
            fd, self._cancel_fd = self._cancel_fd, None
            if fd is not None:
                os.close(fd)

    def outcome(self) -> R:
        if self._error is not None:
            error, self._error = self._error, None  # it holds the frames that hold us
            raise error
        return self._results.pop()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if self._cancel_fd is not None:
                os.eventfd_write(self._cancel_fd, 1)
