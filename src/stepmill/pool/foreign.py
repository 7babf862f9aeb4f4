"""Code that is not ours, in the middle of ours: whether what came out of it is its own failure.

A signal handler may raise anything at any moment (``signal.alarm`` and a ``TimeoutError``, say). Where we catch what an
env's objects raise, to go on without them, what a handler raised must not be taken for that: it is for the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stepmill.pool.uninterrupted import uninterrupted

__all__ = ["bearing", "own_failure"]

R = TypeVar("R")


def bearing(work: Callable[[], R], otherwise: Callable[[BaseException], R]) -> R:
    """``work()``, or ``otherwise(failure)`` where it fails by itself. What a signal handler raises is raised."""
    try:
        return work()
    except BaseException as error:
        failure = own_failure(work)
        if failure is None or isinstance(error, KeyboardInterrupt) > isinstance(failure, KeyboardInterrupt):
            raise  # a handler's, or Ctrl-C
    return otherwise(failure)


def own_failure(work: Callable[[], object]) -> BaseException | None:
    """What ``work``, which has just failed, raises where no signal handler can; None: then it was a handler's."""

    def attempt(_: int | None) -> BaseException | None:
        try:
            work()
        except BaseException as error:
            return error
        return None

    return uninterrupted(attempt)
