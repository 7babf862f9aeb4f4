"""Values of any Gymnasium space as the environment contract wants them: arrays of float32, int64 or uint8.

A space is read once; what comes out is a space of its own, and a function from values of the one to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from stepmill.errors import ObservationError
from stepmill.numbers import cast, description

__all__ = ["Conformed", "as_arrays", "conform"]


@dataclass(frozen=True)
class Conformed:
    """The space that values have after ``convert``, which gives copies: nobody writes into them later."""

    space: spaces.Space[Any]
    convert: Callable[[Any], Any]


def conform(space: spaces.Space[Any], owner: str, path: str = "observation") -> Conformed:
    """Floats become float32, whole numbers int64; uint8 and what no array can hold stay as they are.

    ``convert`` raises an error that names ``owner`` and ``path`` where a value is not of the form of ``space``. Whether
    it is within the bounds is not looked at.
    """
    if isinstance(space, spaces.Dict):
        parts = {key: conform(child, owner, f"{path}[{key!r}]") for key, child in space.items()}
        return Conformed(spaces.Dict({key: part.space for key, part in parts.items()}), _ToDict(parts, owner, path))
    if isinstance(space, spaces.Tuple):
        items = [conform(child, owner, f"{path}[{i}]") for i, child in enumerate(space.spaces)]
        return Conformed(spaces.Tuple([item.space for item in items]), _ToTuple(items, owner, path))
    whole = _with_contract_dtype(space)
    if whole is None:
        return Conformed(space, _Same())
    return Conformed(whole, _ToArray(whole.dtype, whole.shape, owner, path))


def _with_contract_dtype(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Box):
        dtype = _contract_dtype(space.dtype)
        return space if dtype == space.dtype else _box(space, dtype)
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec, np.int64), start=np.asarray(space.start, np.int64))
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiDiscrete(np.full(space.shape, 2))
    return None


def _contract_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype == np.uint8:
        return dtype
    return np.dtype(np.float32) if np.issubdtype(dtype, np.floating) else np.dtype(np.int64)


def _box(space: spaces.Box, dtype: np.dtype[Any]) -> spaces.Box:
    low, high = space.low, space.high
    if dtype == np.int64:
        limits = np.iinfo(np.int64)
        low, high = (np.clip(bound, limits.min, limits.max) for bound in (low, high))
    with np.errstate(over="ignore"):  # the largest float64 is unbounded as a float32
        return spaces.Box(low.astype(dtype), high.astype(dtype), space.shape, dtype.type)


def as_arrays(space: spaces.Space[Any], value: Any) -> Any:
    """A value of a space with its numbers as arrays, as they are."""
    if isinstance(space, spaces.Dict):
        return {key: as_arrays(child, value[key]) for key, child in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(as_arrays(child, part) for child, part in zip(space.spaces, value, strict=True))
    holds_numbers = isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)
    return np.asarray(value) if holds_numbers else value


# Classes, not closures: an env is pickled with its converters.


@dataclass(frozen=True)
class _ToArray:
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    owner: str
    path: str

    def __call__(self, value: Any) -> np.ndarray:
        array = cast(value, self.dtype)
        if array is None or array.shape != self.shape:
            expected = f"numbers of shape {self.shape} and type {self.dtype}"
            _refuse(self.owner, self.path, expected, value)
        return array


@dataclass(frozen=True)
class _ToDict:
    parts: dict[str, Conformed]
    owner: str
    path: str

    def __call__(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or value.keys() != self.parts.keys():
            _refuse(self.owner, self.path, f"a dict with the keys {', '.join(map(repr, self.parts))}", value)
        return {key: part.convert(value[key]) for key, part in self.parts.items()}


@dataclass(frozen=True)
class _ToTuple:
    items: list[Conformed]
    owner: str
    path: str

    def __call__(self, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple | list) or len(value) != len(self.items):
            _refuse(self.owner, self.path, f"a tuple of {len(self.items)} parts", value)
        return tuple(item.convert(one) for item, one in zip(self.items, value, strict=True))


@dataclass(frozen=True)
class _Same:
    def __call__(self, value: Any) -> Any:
        return value


def _refuse(owner: str, path: str, expected: str, value: Any) -> NoReturn:
    raise ObservationError(f"{owner}: {path}: expected {expected}, got {description(value)}")
