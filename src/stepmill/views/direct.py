"""Methods that return batches, without a Python frame between the engine and the caller.

CPython runs signal handlers between the instructions of Python code. If one raised in a frame of ours, right after the
engine had given away a batch, the batch would be lost. So such a method only prepares the call, and C++ makes it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from stepmill import _native

__all__ = ["Call", "direct"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Call = tuple[Callable[..., R], tuple[Any, ...]]  # a function that returns R, and its arguments


class direct(Generic[T, P, R]):
    """Decorates a method that returns ``(function, arguments)``: calling it returns ``function(*arguments)``."""

    def __init__(self, prepare: Callable[Concatenate[T, P], Call[R]]) -> None:
        self._prepare = prepare
        self.__doc__ = prepare.__doc__
        self.__name__ = prepare.__name__
        self.__qualname__ = prepare.__qualname__
        self.__module__ = prepare.__module__

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the method, with the result of the function that it prepares."""
        signature = inspect.signature(self._prepare)
        returned = re.fullmatch(r"Call\[(.*)\]", signature.return_annotation)
        return signature.replace(return_annotation=returned[1] if returned else inspect.Signature.empty)

    @property
    def bound_signature(self) -> inspect.Signature:
        """The signature without ``self``."""
        signature = self.__signature__
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __call__(self, owner: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the method as ``Class.method(owner, ...)`` does."""
        return self.__get__(owner)(*args, **kwargs)

    def __get__(self, owner: T | None, owner_type: type[T] | None = None) -> Callable[P, R]:
        if owner is None:
            return self  # type: ignore[return-value]  # for documentation, and to see whether a subclass has its own
        return _native.Bound(_native.call_prepared, (self._prepare, owner), self)

    def made_by(self, function: Callable[..., R], *given: Any) -> Callable[P, R]:
        """The method as ``function(*given, ...)`` does it, with nothing to prepare; it is shown as this one."""
        return _native.Bound(function, given, self)
