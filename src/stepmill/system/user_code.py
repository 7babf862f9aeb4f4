"""Tells failures of the user's code from exceptions that a signal handler raised while it ran.

A signal handler may raise anything at any moment, for example a ``TimeoutError`` after ``signal.alarm``. We catch what
an env's objects raise and go on without them, but what a handler raises must reach the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from stepmill.system.uninterrupted import uninterrupted

R = TypeVar("R")


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
