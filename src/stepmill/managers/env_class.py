"""An error of a manager is also of the class of the env's own exception: ``except ValueError`` around ``step`` works.

Pools do not do this: there ``ValueError`` means invalid input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stepmill.errors import EnvError, RemoteEnvError

__all__ = ["in_class_of_cause"]

# Raised by `step`, these would silently end a generator or a loop of the caller.
_ENDS_OF_LOOPS = (StopIteration, StopAsyncIteration)


def in_class_of_cause(error: EnvError) -> EnvError:
    """Returns the error in the class of its cause too, or in the nearest built-in base of it that goes with ours."""
    for own in _classes_of(error.__cause__):
        if isinstance(error, own):
            return error
        try:
            return _made(_both(type(error), own), error.args, error.__dict__, error.__cause__)
        except Exception:  # classes with other layouts, or with code of their own that runs when a subclass is made
            continue
    return error


def _classes_of(cause: BaseException | None) -> Iterator[type[Exception]]:
    kind = cause.base if isinstance(cause, RemoteEnvError) else type(cause)
    for one in kind.__mro__:
        is_own = one is kind or one.__module__ == "builtins"
        if is_own and issubclass(one, Exception) and one is not Exception and not issubclass(one, _ENDS_OF_LOOPS):
            yield one


_joined: dict[tuple[Any, Any], type[EnvError]] = {}
_MOST_JOINED = 256  # an env that travels by value has a new class in each launch


def _both(kind: type[EnvError], own: type[Exception]) -> type[EnvError]:
    """A class that is of both kinds."""

    def __reduce__(self: EnvError) -> Any:
        return _unpickled, (kind, own, self.args, self.__dict__)

    if (kind, own) not in _joined:
        if len(_joined) >= _MOST_JOINED:
            _joined.clear()
        attributes = {"__module__": kind.__module__, "__reduce__": __reduce__}
        _joined[kind, own] = type(kind.__name__, (kind, own), attributes)
    return _joined[kind, own]


def _made(kind: type[EnvError], args: Any, attributes: dict[str, Any], cause: BaseException | None = None) -> EnvError:
    error = kind(*args)
    error.__dict__.update(attributes)
    error.__cause__ = cause
    return error


def _unpickled(kind: type[EnvError], own: type[Exception], args: Any, attributes: dict[str, Any]) -> EnvError:
    return _made(_both(kind, own), args, attributes)
