"""Makes the calls to an env, and notes what they do besides returning: raising, touching global generators."""

from __future__ import annotations

import contextlib
import pickle
import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stepmill.errors import summary

__all__ = ["FAILURES", "Calls", "Raised", "Stopped", "Touched"]

# What an env may raise and is its failure, as in pools: sys.exit() in a step ends no check.
FAILURES = (Exception, SystemExit)


class Stopped(Exception):
    """The trial cannot go on; says why."""


@dataclass(frozen=True)
class Raised:
    """An exception that came out of an env."""

    call: str
    where: str
    kind: type[BaseException]
    error: str


@dataclass(frozen=True)
class Touched:
    """A call that changed the state of a global generator."""

    call: str
    where: str
    generator: str


class Calls:
    """Every call to the envs under check goes through here."""

    def __init__(self) -> None:
        self.raised: list[Raised] = []
        self.touched: list[Touched] = []
        self._generators = _generators()

    def __call__(self, call: str, where: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function; where it raises, notes that and raises ``Stopped``."""
        try:
            return function(*args, **kwargs)
        except FAILURES as error:
            self.raised.append(Raised(call, where, type(error), _last_line(error)))
            raise Stopped(f"{where} raised") from error
        finally:
            # Nothing draws from them between two calls; reading them is the dear part of a call.
            before, self._generators = self._generators, _generators()
            changed = [name for name in before if before[name] != self._generators[name]]
            self.touched += [Touched(call, where, name) for name in changed]

    def has(self, env: Any, name: str) -> bool:
        """Whether an env has that attribute. A ``__getattr__`` that raises anything else to say no is noted."""
        with contextlib.suppress(Stopped):
            return bool(self("hasattr", f"hasattr(env, {name!r})", hasattr, env, name))
        return False


def _generators() -> dict[str, Any]:
    return {"np.random": pickle.dumps(np.random.get_state(legacy=False)), "random": random.getstate()}


def _last_line(error: BaseException) -> str:
    """``KeyError: 'speed' (my_env.py:31)``: what was raised, and where."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    file = Path(frame.filename)
    is_ours = file.parent == Path(__file__).parent  # a call that could not even be made
    return summary(error) if is_ours else f"{summary(error)} ({file.name}:{frame.lineno})"
