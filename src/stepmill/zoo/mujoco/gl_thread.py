"""A thread for OpenGL, whose contexts belong to the thread that made them."""

from __future__ import annotations

import atexit
import functools
import os
import queue
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from stepmill.errors import ClosedError
from stepmill.system.uninterrupted import uninterrupted

__all__ = ["GlThread"]

R = TypeVar("R")


class Closable(Protocol):
    def close(self) -> None: ...


W = TypeVar("W", bound=Closable)


class GlThread(Generic[W]):
    """Runs functions one after another in a thread of its own. Each is passed what ``make_world`` made there.

    That object lives in the frame of the thread and nowhere else. So nothing of it is freed in a forked child, which
    has no such thread: its contexts are the parent's.
    """

    def __init__(self, name: str, make_world: Callable[[], W]) -> None:
        self._jobs: queue.SimpleQueue[_Job[W, Any] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._has_ended = False
        self._pid = os.getpid()
        # A daemon, because Python waits for other threads before it calls what we registered for the exit.
        self._thread = threading.Thread(target=_serve, args=(self._jobs, make_world), name=name, daemon=True)
        self._thread.start()
        _running.add(self)

    def run(self, function: Callable[[W], R]) -> R:
        """Calls the function there and returns its result. Ctrl-C waits for its end: it uses the caller's objects."""
        job = _Job(function)

        def ask(_: int | None) -> R:
            with self._lock:
                if self._has_ended:
                    raise ClosedError("render: the program is ending, and nothing draws any more")
                self._jobs.put(job)
            return job.wait()

        return uninterrupted(ask)

    def end(self) -> None:
        """Closes what was made there, and ends the thread."""
        if self._pid != os.getpid() or threading.get_ident() == self._thread.ident:
            return
        job: _Job[W, None] = _Job(lambda world: world.close())

        def ask(_: int | None) -> None:
            with self._lock:
                if self._has_ended:
                    return
                self._has_ended = True
                self._jobs.put(job)
                self._jobs.put(None)
            job.wait()

        uninterrupted(ask)
        self._thread.join()  # not in ``ask``: the threads that it may run in are unknown to the module of this one


class _Job(Generic[W, R]):
    def __init__(self, function: Callable[[W], R]) -> None:
        self._function: Callable[[W], R] | None = function
        self._outcome: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()

    def do(self, world: W) -> None:
        function, self._function = self._function, None
        assert function is not None
        try:
            outcome: tuple[bool, Any] = True, function(world)
        except BaseException as error:  # raised again in the thread that waits
            _drop_locals(error)
            outcome = False, error
        del function  # and what it holds of the caller
        self._outcome.put(outcome)

    def wait(self) -> R:
        is_good, value = self._outcome.get()
        if is_good:
            result: R = value
            return result
        raise value


def _drop_locals(error: BaseException | None) -> None:
    """So that contexts that were half made are freed here, not where the exception is dropped."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _serve(jobs: queue.SimpleQueue[_Job[W, Any] | None], make_world: Callable[[], W]) -> None:
    world = make_world()
    while (job := jobs.get()) is not None:
        job.do(world)
        _end_threads_before_others()
        del job


# ---- the end of the program ------------------------------------------------------------------------

_running: weakref.WeakSet[GlThread[Any]] = weakref.WeakSet()


@functools.cache
def _end_threads_before_others() -> None:
    """Has the threads ended when the program ends, before what they use is.

    MuJoCo registers the end of EGL when it makes its first context, and what is registered last is called first: so
    this is called when there may be one.
    """
    atexit.register(_end_all)


def _end_all() -> None:
    for thread in list(_running):
        thread.end()
