"""Values of any Gymnasium space as the environment contract wants them: arrays of float32, int64 or uint8.

A space is read once; what comes out is a space of its own, and a function from values of the one to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ActionError

__all__ = ["ActionReader", "Conformed", "action_reader", "as_arrays", "conform"]


@dataclass(frozen=True)
class Conformed:
    """The space that values have after ``convert``, which gives copies: nobody writes into them later."""

    space: spaces.Space[Any]
    convert: Callable[[Any], Any]


def conform(space: spaces.Space[Any]) -> Conformed:
    """Floats become float32, whole numbers int64; uint8 and what no array can hold stay as they are."""
    if isinstance(space, spaces.Dict):
        parts = {key: conform(child) for key, child in space.items()}
        return Conformed(spaces.Dict({key: part.space for key, part in parts.items()}), _ToDict(parts))
    if isinstance(space, spaces.Tuple):
        items = [conform(child) for child in space.spaces]
        return Conformed(spaces.Tuple([item.space for item in items]), _ToTuple(items))
    if isinstance(space, spaces.Box):
        dtype = _contract_dtype(space.dtype)
        return Conformed(space if dtype == space.dtype else _box(space, dtype), _ToArray(dtype))
    if isinstance(space, spaces.Discrete):
        return Conformed(spaces.Discrete(int(space.n), start=int(space.start)), _ToArray(np.dtype(np.int64)))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start, np.int64)
        return Conformed(spaces.MultiDiscrete(np.asarray(space.nvec, np.int64), start=start), _ToArray(start.dtype))
    if isinstance(space, spaces.MultiBinary):
        return Conformed(spaces.MultiDiscrete(np.full(space.shape, 2)), _ToArray(np.dtype(np.int64)))
    return Conformed(space, _Same())


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

    def __call__(self, value: Any) -> np.ndarray:
        return np.array(value, self.dtype)


@dataclass(frozen=True)
class _ToDict:
    parts: dict[str, Conformed]

    def __call__(self, value: Any) -> dict[str, Any]:
        return {key: part.convert(value[key]) for key, part in self.parts.items()}


@dataclass(frozen=True)
class _ToTuple:
    items: list[Conformed]

    def __call__(self, value: Any) -> tuple[Any, ...]:
        return tuple(item.convert(one) for item, one in zip(self.items, value, strict=True))


@dataclass(frozen=True)
class _Same:
    def __call__(self, value: Any) -> Any:
        return value


# ---- actions: the other way ----------------------------------------------------------------------

ActionReader = Callable[[Any], Any]


def action_reader(space: spaces.Space[Any], owner: str, path: str = "action") -> ActionReader:
    """A function from actions as arrays, lists or numbers to what an env of that space takes in ``step``."""
    if isinstance(space, spaces.Dict):
        return _DictAction(
            {key: action_reader(child, owner, f"{path}[{key!r}]") for key, child in space.items()}, owner, path
        )
    if isinstance(space, spaces.Tuple):
        return _TupleAction(
            [action_reader(child, owner, f"{path}[{i}]") for i, child in enumerate(space.spaces)], owner, path
        )
    if isinstance(space, spaces.Discrete):
        return _NumberAction(space, owner, path)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _ArrayAction(space, owner, path)
    return _Same()


@dataclass(frozen=True)
class _NumberAction:
    space: spaces.Discrete
    owner: str
    path: str

    def __call__(self, action: Any) -> int:
        try:
            number = np.asarray(action).item()  # also of shape (1,), as policies give it
            whole = int(number)
        except (TypeError, ValueError):
            _reject(self.owner, self.path, self.space, action)
        if whole != number or not 0 <= whole - int(self.space.start) < int(self.space.n):
            _reject(self.owner, self.path, self.space, action)
        return whole


@dataclass(frozen=True)
class _ArrayAction:
    space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
    owner: str
    path: str

    def __call__(self, action: Any) -> np.ndarray:
        try:
            array = np.array(action, self.space.dtype)
        except (TypeError, ValueError):
            _reject(self.owner, self.path, self.space, action)
        if array.shape != self.space.shape:
            if array.size != np.prod(self.space.shape):
                _reject(self.owner, self.path, self.space, action)
            array = array.reshape(self.space.shape)
        # Box bounds are the env's to treat, as in Gymnasium; an index outside of its range is nobody's.
        outside = not isinstance(self.space, spaces.Box) and not self.space.contains(array)
        if outside or np.isnan(array).any():
            _reject(self.owner, self.path, self.space, action)
        return array


@dataclass(frozen=True)
class _DictAction:
    parts: dict[str, ActionReader]
    owner: str
    path: str

    def __call__(self, action: Any) -> dict[str, Any]:
        if not isinstance(action, dict) or set(action) != set(self.parts):
            _reject(self.owner, self.path, f"a dict with the keys {', '.join(map(repr, self.parts))}", action)
        return {key: part(action[key]) for key, part in self.parts.items()}


@dataclass(frozen=True)
class _TupleAction:
    items: list[ActionReader]
    owner: str
    path: str

    def __call__(self, action: Any) -> tuple[Any, ...]:
        if not isinstance(action, tuple | list) or len(action) != len(self.items):
            _reject(self.owner, self.path, f"a tuple of {len(self.items)} parts", action)
        return tuple(item(one) for item, one in zip(self.items, action, strict=True))


def _reject(owner: str, path: str, expected: Any, got: Any) -> Any:
    raise ActionError(f"{owner}: {path}: expected {expected}, got {got!r}") from None
