"""An error of a manager is also of the class of the env's own exception: ``except ValueError`` around ``step`` works.

Pools do not do this: there ``ValueError`` means invalid input.
"""

from __future__ import annotations

import builtins
import pickle
from functools import partial
from typing import Any

from stepmill.errors import EnvError, RemoteEnvError
from stepmill.system.uninterrupted import try_or

# Raised by `step`, these would silently end a generator or a loop of the caller, or the program.
_NEVER = (StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt, SystemExit)


def in_class_of_cause(error: EnvError) -> EnvError:
    """Returns the error in the class of its cause too, or in the nearest built-in base of it that goes with ours."""
    cause = error.__cause__
    for own in _classes_of(cause.base if isinstance(cause, RemoteEnvError) else type(cause)):
        if isinstance(error, own):
            return error
        # Classes with other layouts, or with code of their own that runs when a subclass is made, may refuse.
        made = try_or(partial(_joined_error, error, own), lambda _: None)
        if made is not None:
            return made
    return error


def _classes_of(kind: type) -> list[type[Exception]]:
    own = [one for one in kind.__mro__ if one is kind or getattr(builtins, one.__name__, None) is one]
    return [one for one in own if issubclass(one, Exception) and one is not Exception and not issubclass(one, _NEVER)]


_joined: dict[tuple[Any, Any], type[EnvError]] = {}
_MOST_JOINED = 256  # an env that travels by value has a new class in each launch


def _both(kind: type[EnvError], own: type[Exception]) -> type[EnvError]:
    """A class that is of both kinds."""

    def __reduce__(self: EnvError) -> Any:
        return _unpickled, (kind, _picklable(own), self.args, self.__dict__)

    if (kind, own) not in _joined:
        if len(_joined) >= _MOST_JOINED:
            _joined.clear()
        attributes = {"__module__": kind.__module__, "__reduce__": __reduce__}
        _joined[kind, own] = type(kind.__name__, (kind, own), attributes)
    return _joined[kind, own]


def _joined_error(error: EnvError, own: type[Exception]) -> EnvError | None:
    """The same error in both classes; None if it does not read the same, since that class's ``__init__`` never ran."""
    made = _both(type(error), own)(*error.args)
    made.__dict__.update(error.__dict__)
    made.__cause__ = error.__cause__
    return made if _shown(made) == _shown(error) else None


def _shown(error: EnvError) -> tuple[str, Any]:
    return str(error), getattr(error, "__notes__", None)


def _picklable(own: type[Exception]) -> type[Exception] | None:
    """The class, or the nearest built-in base of it if it is local; None if there is none."""
    for one in _classes_of(own):
        if try_or(partial(pickle.dumps, one), lambda _: b""):
            return one
    return None


def _unpickled(kind: type[EnvError], own: type[Exception] | None, args: Any, attributes: dict[str, Any]) -> EnvError:
    error = (kind if own is None else _both(kind, own))(*args)
    error.__dict__.update(attributes)
    return error
