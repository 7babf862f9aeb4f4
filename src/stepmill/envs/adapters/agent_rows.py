"""The values of several agents as rows of one array, and back.

If the agents' spaces differ, they can be padded: vectors with zeros to the longest, Discrete spaces to the largest.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ActionError, SpaceError
from stepmill.values.casting import as_numbers
from stepmill.values.fitting import Misfit, fit
from stepmill.values.trees import map_tree, map_trees, tree_of

__all__ = ["split_rows", "stack_rows", "stack_spaces"]


def stack_spaces(
    name: str, own: Sequence[spaces.Space[Any]], pad: bool, *, holds_zero: bool = False
) -> spaces.Space[Any]:
    """The space of the rows. ``holds_zero`` widens the bounds so that a row of zeros is inside."""
    first = own[0]
    if isinstance(first, spaces.Dict) and all(
        isinstance(one, spaces.Dict) and one.keys() == first.keys() for one in own
    ):
        parts = {
            key: stack_spaces(f"{name}[{key!r}]", [one[key] for one in own], pad, holds_zero=holds_zero)  # type: ignore[index]
            for key in first
        }
        return spaces.Dict(parts)
    kind = next((k for k in (spaces.Box, spaces.Discrete, spaces.MultiDiscrete) if isinstance(first, k)), None)
    if kind is None or any(not isinstance(one, kind) or one.dtype != first.dtype for one in own):
        raise SpaceError(
            f"{name}: expected agents whose spaces are all Box, all Discrete, all MultiDiscrete, or Dicts of these "
            f"with the same keys, got {list(own)}"
        )
    if any(one != first for one in own):
        if not pad:
            raise SpaceError(
                f"{name}: expected agents with equal spaces, got {list(own)}. "
                "ParallelAsBaseEnv(env, cfg={'pad': True}) pads the smaller ones"
            )
        if any(len(one.shape or ()) > 1 for one in own):
            raise SpaceError(f"{name}: pad: expected vectors or numbers, got {list(own)}")
    low, high = _common_bounds(own)
    if holds_zero:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    low, high = (np.repeat(bound[None], len(own), axis=0) for bound in (low, high))
    if kind is spaces.Box:
        return spaces.Box(low, high, dtype=first.dtype.type)  # type: ignore[union-attr]
    return spaces.MultiDiscrete(high - low + 1, start=low)


def _common_bounds(own: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The minimum and the maximum over all agents, elementwise."""
    bounds = [_bounds(one) for one in own]
    longest = max((low.shape for low, _ in bounds), key=lambda shape: shape[0] if shape else 0)
    lows = [_filled(low, longest) for low, _ in bounds]
    highs = [_filled(high, longest) for _, high in bounds]
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _bounds(space: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start, np.int64), np.asarray(space.start + space.n - 1, np.int64)
    return np.asarray(space.start, np.int64), np.asarray(space.start + space.nvec - 1, np.int64)


def _filled(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    out = np.zeros(shape, array.dtype)
    out[tuple(map(slice, array.shape))] = array
    return out


def stack_rows(space: spaces.Space[Any], values: Sequence[Any]) -> Any:
    """One row per value, which has the form of its agent's space; zeros for None."""
    rows = map_tree(lambda part: np.zeros(part.shape or (), part.dtype), tree_of(space))
    for row, value in enumerate(values):
        if value is not None:
            map_trees(functools.partial(_put, row), rows, value)
    return rows


def _put(row: int, rows: np.ndarray, value: np.ndarray) -> None:
    rows[_place(row, value.shape)] = value


def split_rows(owner: str, space: spaces.Space[Any], action: Any, own: Sequence[spaces.Space[Any]]) -> list[Any]:
    """The rows of an action, each in the shape of its agent's own space. The numbers are not checked."""
    try:
        parts = fit(_rows, tree_of(space), action)
    except Misfit as misfit:
        raise ActionError(f"{owner}: {misfit.message('action')}") from None
    return [map_trees(functools.partial(_take, row), parts, tree_of(one)) for row, one in enumerate(own)]


def _rows(space: spaces.Space[Any], value: Any) -> np.ndarray:
    array = as_numbers(value)
    if array is None or array.shape != space.shape:
        raise Misfit(f"one row per agent, shape {space.shape}", value)
    return array


def _take(row: int, rows: np.ndarray, space: spaces.Space[Any]) -> Any:
    return rows[_place(row, space.shape or ())]


def _place(row: int, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Where an agent's own values are in its row: at the start, before the padding."""
    return (row, *map(slice, shape))
