"""Builds, seeds and closes the envs of a trial."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from stepmill.testing.calls import FAILURES, Calls, Stopped
from stepmill.testing.subject import Subject

__all__ = ["Keeper"]


class Keeper:
    """Every env that it builds is closed in the end, whatever happens."""

    def __init__(self, subject: Subject, calls: Calls) -> None:
        self._subject = subject
        self._calls = calls
        self._open: list[Any] = []

    def new(self, who: str) -> Any:
        """An env that was not used before; the one there is, where there is only one."""
        env = self._subject.env(self._calls, who)
        self._open.append(env)
        return env

    def seed(self, env: Any, seed: int, dynamic: bool) -> None:
        """Seeds the episodes to come."""
        if self._calls.has(env, "seed"):  # it may be left out where nothing is random
            self._calls("seed", f"seed({seed}, dynamic_seed={dynamic})", env.seed, seed, dynamic_seed=dynamic)

    def leave(self, env: Any) -> None:
        """Closes an env that is not needed any more."""
        if self._subject.makes_many:
            self.close(env)

    def close(self, env: Any) -> None:
        """Closes an env."""
        self._open = [one for one in self._open if one is not env]
        self._calls("close", "close()", env.close)

    def close_all(self) -> None:
        """Closes what is open after a trial that broke off; its reason is known, other errors would hide it."""
        for env in self._open:
            with contextlib.suppress(*FAILURES):
                env.close()

    def attempt(self, call: str, where: str, function: Callable[..., Any], *args: Any) -> Any:
        """A call that the rest does not depend on; None where it raises."""
        with contextlib.suppress(Stopped):
            return self._calls(call, where, function, *args)
        return None
