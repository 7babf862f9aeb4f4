"""Runs work that no signal handler may interrupt, and tells failures of the user's code from what a handler raised."""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

R = TypeVar("R")


def uninterrupted(work: Callable[[int | None], R], thread: LastingThread | None = None) -> R:
    """Runs ``work`` where no signal handler can raise, so that it never loses what it has just opened.

    Handlers run in the main thread, so the work runs in another one while the main thread waits. If a handler raises
    here, above all KeyboardInterrupt, the work is cancelled, and we wait until it has cleaned up. ``work`` is passed a
    descriptor, if one is available, that becomes readable when it is cancelled. ``thread`` runs it, if given and free.
    """
    task = _Task(work)
    raised: BaseException | None = None
    if threading.get_ident() != threading.main_thread().ident or sys.is_finalizing():
        task.run()
        return task.outcome()
    try:
        if thread is None or not thread.take(task):
            task.start()
    except BaseException as error:
        if not task.decide():  # it has started, and a handler has raised
            task.cancel()
            raised = error
        elif _is_lack_of_threads(error):
            task.do()
            return task.outcome()
        else:
            task.drop()
            raise
    while not task.is_over:
        try:
            # Neither join() nor an Event: once interrupted, join() believes that the thread has ended (Python 3.11),
            # and an Event can be left locked.
            task.wait()
        except BaseException as error:
            task.cancel()
            raised = raised or error
    if raised is not None:
        try:
            raise raised
        finally:
            del raised  # or it would hold this frame, which holds it
    task.run()  # does nothing, unless the thread had no memory to start: the work may have something to close
    return task.outcome()


def _is_lack_of_threads(error: BaseException) -> bool:
    """Whether no more are allowed, or the interpreter is shutting down: a handler may raise a RuntimeError too."""
    return isinstance(error, RuntimeError) and "new thread" in str(error)


class LastingThread:
    """Runs work after work, for what is done hundreds of times a second: a new thread for each would cost more.

    It starts with the first work, and ends when nobody has this object any more.
    """

    def __init__(self) -> None:
        self._process = 0  # in which the thread runs: in a child of that there is none
        self._tasks: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._last: list[_Task[Any]] = []  # what the thread was given last
        self._life: weakref.ref[_Token] | None = None

    def take(self, task: _Task[Any]) -> bool:
        """Runs a task, unless another one is not over yet: a signal handler has work of its own while we wait."""
        if self._process != os.getpid():
            self._tasks, self._last, self._life, self._process = queue.SimpleQueue(), [], None, os.getpid()
        if not all(last.is_over for last in self._last):
            return False
        if self._is_alive():
            self._last[0] = task
        else:
            self._last = [task]  # another list: a thread that is just ending ends what is in its own
            self._start()
        self._tasks.put(task)
        if not self._is_alive():  # it ended in between, without memory, and perhaps did not know of this task
            task.end()
        return True

    def _is_alive(self) -> bool:
        return self._life is not None and self._life() is not None

    def _start(self) -> None:
        token = _Token()
        try:
            self._life = weakref.ref(token, partial(_end_all, self._last))
            # When we go, a reference goes into the queue. No method does this: a handler might raise at its start.
            owner = weakref.ref(self, self._tasks.put)
            _thread.start_new_thread(_run_all, (self._tasks, token, owner))
        finally:
            del token  # our frame may live on, in the traceback of what a signal handler raises


def _run_all(tasks: queue.SimpleQueue[object], token: _Token, owner: weakref.ref[LastingThread]) -> None:
    del token  # the interpreter holds it until the thread ends
    while isinstance(task := tasks.get(), _Task):
        task.run()
        task.end()
        del task  # or it would live on until the next one


def _end_all(tasks: list[_Task[Any]], _: object) -> None:
    for task in tasks:
        task.end()


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
            self._watch = weakref.ref(token, self.end)
            return (token,)
        finally:
            del token  # our frame may live on, in the traceback of what a signal handler raises

    def end(self, _: object = None) -> None:
        """Says that no thread has anything to do with it any more.

        The one that waits does not: it might lose what it has just taken out of the queue.
        """
        self.is_over = True
        self._ended.put(None)

    def drop(self) -> None:
        """Nobody will do the work."""
        del self._work
        self.end()

    def wait(self) -> None:
        """Waits until the thread has nothing to do with it any more, for whatever reason."""
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
        if self.decide():
            self.do()

    def do(self) -> None:
        """Does the work. Whoever calls this has decided so."""
        try:
            with self._lock, contextlib.suppress(OSError):  # no descriptor is left: closing must work without one
                self._cancel_fd = os.eventfd(int(self._is_cancelled), os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._results.append(self._work(self._cancel_fd))
        except BaseException as error:  # raised again in the thread that waits
            self._error = error
        # This thread may drop the task after the one that waits has dropped all else that the work needs.
        del self._work
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


# ---- failures of the user's code -----------------------------------------------------------------
# A signal handler may raise anything at any moment, for example a TimeoutError after `signal.alarm`. We catch what an
# env's objects raise and go on without them, but what a handler raises must reach the caller.


def try_or(work: Callable[[], R], otherwise: Callable[[BaseException], R]) -> R:
    """``work()``, or ``otherwise(failure)`` if it fails by itself. What a signal handler raises passes through."""
    try:
        return work()
    except BaseException as error:
        failure = reproduced_failure(work)
        if failure is None or isinstance(error, KeyboardInterrupt) > isinstance(failure, KeyboardInterrupt):
            raise  # from a handler, or Ctrl-C
    return otherwise(failure)


def reproduced_failure(work: Callable[[], object]) -> BaseException | None:
    """Runs ``work``, which has just failed, again where no signal handler can raise, and returns what it raises.

    None means that a signal handler had raised.
    """

    def attempt(_: int | None) -> BaseException | None:
        try:
            work()
        except BaseException as error:
            return error
        return None

    return uninterrupted(attempt)
