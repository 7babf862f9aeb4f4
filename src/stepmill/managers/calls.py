"""One call at a time: a manager refuses a second call while one is inside, and finishes what an exception interrupted.

Ctrl-C and signal handlers may raise anywhere in a call. See ``states.py`` for how the next call finds what was left.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from stepmill.errors import ConcurrentUseError
from stepmill.hosts.host import Uncopyable
from stepmill.managers.standings import Standings

P = ParamSpec("P")
R = TypeVar("R")
Owner = TypeVar("Owner", bound="OneCallAtATime")


class OneCallAtATime(Uncopyable):
    """The base of a class whose ``exclusive`` methods never run side by side, nor inside one another."""

    standings: Standings

    def __init__(self) -> None:
        self._callers: dict[object, None] = {}  # the first is inside, others are being refused
        self._needs_mending = False  # a call raised something, perhaps in the middle of a move

    def refuse_if_busy(self) -> None:
        """Raises if a call is inside."""
        if self._callers:
            self._refuse_second(object())

    @property
    def _caller(self) -> object:
        """The call that is inside."""
        return list(self._callers)[0]  # noqa: RUF015  (in one go: a call of another thread may come and leave)

    def _refuse_second(self, token: object) -> None:
        if self._caller is not token:
            raise ConcurrentUseError(
                f"{self!r}: another call is still running, in another thread or in the code that a signal handler "
                "interrupted: a manager takes one call at a time. Use a lock, or wait until the call has returned"
            )

    def _mend(self) -> None:
        """Finishes what an exception interrupted."""
        raise NotImplementedError


def exclusive(method: Callable[Concatenate[Owner, P], R]) -> Callable[Concatenate[Owner, P], R]:
    """Makes a method refuse to run beside another one, and first finish what an exception interrupted."""

    @functools.wraps(method)
    def call(self: Owner, /, *args: P.args, **kwargs: P.kwargs) -> R:
        token = object()
        is_inside = False
        try:
            self._callers[token] = None
            self._refuse_second(token)
            is_inside = True
            if self._needs_mending:
                self._mend()
                self._needs_mending = False
            result = method(self, *args, **kwargs)
            self._callers.pop(token)  # not in a `finally`: what is raised there would lose the result
            return result
        except BaseException as error:
            handover = self.standings.handover if is_inside else None
            if handover is not None and handover.call is not token:
                handover = None
            if is_inside:
                self._needs_mending = True
            if handover is not None:
                handover.is_lost = True  # a handler may raise here as well, in place of an error that carries it
            self._callers.pop(token, None)
            if handover is not None and handover.error is error:
                handover.is_lost = False
            raise

    return call
