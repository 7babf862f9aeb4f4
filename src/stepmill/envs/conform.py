"""Values of any Gymnasium space in the types of ``BaseEnv`` (arrays of float32, int64 or uint8), and actions back.

A space is read once; the result is the new space, and a function that converts values of the old one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ActionError, ObservationError
from stepmill.values.fitting import Fitter, Misfit, array_of, cast, holds_arrays
from stepmill.values.trees import map_tree, map_trees, space_from, tree_of


@dataclass(frozen=True)
class Conversion:
    """``space`` has the values that ``convert`` returns. They are copies: nothing writes into them later."""

    space: spaces.Space[Any]
    convert: Callable[[Any], Any]


def conform(space: spaces.Space[Any], owner: str, name: str = "observation") -> Conversion:
    """Floats become float32, whole numbers int64; uint8 and values that are not arrays stay unchanged.

    ``convert`` raises an error that names ``owner`` and ``name`` if a value does not have the form of ``space``. It
    does not check bounds.
    """
    whole = map_tree(_with_contract_dtype, tree_of(space))
    return Conversion(space_from(whole), Fitter(map_tree(_converter, whole), owner, name, ObservationError))


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
    return space


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
    """A value of a space with its numbers as arrays, in their own types."""
    return map_trees(lambda leaf, part: np.asarray(part) if holds_arrays(leaf) else part, tree_of(space), value)


def _converter(space: spaces.Space[Any]) -> Any:
    return _ToArray(space.shape or (), np.dtype(space.dtype)) if holds_arrays(space) else _as_it_is


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class _ToArray:
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __call__(self, value: Any) -> np.ndarray:
        return array_of(self.shape, self.dtype, value, copy=True)


# ---- actions -------------------------------------------------------------------------------------


def action_reader(space: spaces.Space[Any], owner: str, name: str = "action") -> Fitter:
    """A function from actions as arrays, lists or numbers to what an env with that action space takes in ``step``."""
    return Fitter(map_tree(_leaf_reader, tree_of(space)), owner, name, ActionError)


def _leaf_reader(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Discrete):
        return _Number(space)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _Array(space)
    return _as_it_is


# Classes, not closures: an env is pickled together with its reader. An action may have extra axes of length one, since
# policies often add them.


@dataclass(frozen=True)
class _Number:
    space: spaces.Discrete

    def __call__(self, action: Any) -> int:
        number = action if type(action) is int else _whole_number(action)
        if number is None or not 0 <= number - int(self.space.start) < int(self.space.n):
            raise Misfit(self.space, action)
        return number


def _whole_number(action: Any) -> int | None:
    array = cast(action, np.dtype(np.int64))
    return None if array is None or array.size != 1 else int(array.item())


@dataclass(frozen=True)
class _Array:
    space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary

    def __call__(self, action: Any) -> np.ndarray:
        array = cast(action, self.space.dtype)
        if array is not None and array.shape != self.space.shape and array.size == math.prod(self.space.shape):
            array = array.reshape(self.space.shape)
        if array is None or array.shape != self.space.shape:
            raise Misfit(self.space, action)
        # Values outside the bounds of a Box are left to the env, as in Gymnasium; an index out of range is an error.
        outside = not isinstance(self.space, spaces.Box) and not self.space.contains(array)
        if outside or np.isnan(array).any():
            raise Misfit(self.space, action)
        return array
