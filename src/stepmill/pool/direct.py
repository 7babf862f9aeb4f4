"""Methods that return batches, without a Python frame between the engine and the caller.

CPython runs signal handlers between the instructions of Python code. If one raised in a frame of ours, right after the
engine had given away a batch, the batch would be lost. So such a method only prepares the call, and C++ makes it.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from stepmill import _native

__all__ = ["Call", "direct"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

Call = tuple[Callable[..., R], tuple[Any, ...]]  # a function that returns R, and its arguments


class _Bound(functools.partial[Any]):
    """A bound method that makes the call it prepares. Keeps its object alive."""

    @property
    def _method(self) -> types.MethodType:
        return types.MethodType(*self.args)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._method)

    @property
    def __name__(self) -> str:
        return self._method.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._method.__doc__


class direct(Generic[T, P, R]):
    """Decorates a method that returns ``(function, arguments)``: calling it returns ``function(*arguments)``."""

    def __init__(self, prepare: Callable[Concatenate[T, P], Call[R]]) -> None:
        self._prepare = prepare
        self.__doc__ = prepare.__doc__
        self.__name__ = prepare.__name__
        self.__wrapped__ = prepare  # for `inspect.signature`

    def __call__(self, owner: T, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """As ``Class.method(owner, ...)``."""
        return self.__get__(owner)(*args, **kwargs)

    def __get__(self, owner: T | None, owner_type: type[T] | None = None) -> Callable[P, R]:
        if owner is None:
            return self  # type: ignore[return-value]  # for documentation, and to see whether a subclass has its own
        return _Bound(_native.call_prepared, self._prepare, owner)
