"""Gymnasium spaces and the flat arrays that the engine moves.

A space is a tree; its leaves are arrays of a fixed shape and type, and only those reach the engine.
Spaces without a fixed array form (Text, Sequence, Graph, OneOf, custom ones) become *object leaves*:
their values travel beside the arrays as Python objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.values.trees import Tree, map_tree, map_trees, paths, space_from, tree_of


class LeafKind(IntEnum):
    """The kinds of ``cpp/core/env/spec.h``, by the same numbers."""

    BOX = 0
    DISCRETE = 1
    MULTI_DISCRETE = 2
    MULTI_BINARY = 3


@dataclass(frozen=True)
class ArrayLeaf:
    """One array of a space: ``cpp/core/env/spec.h`` describes the fields."""

    name: str
    kind: LeafKind
    dtype: str
    shape: tuple[int, ...]
    low: list[float] = field(default_factory=lambda: [-np.inf])
    high: list[float] = field(default_factory=lambda: [np.inf])
    player_kind: int = 0
    whole_bounds: tuple[list[int], list[int]] | None = None  # low and high, where a float might be another number

    def as_dict(self) -> dict[str, Any]:
        low, high = self.whole_bounds or (self.low, self.high)
        return {
            "name": self.name,
            "kind": int(self.kind),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "low": low,
            "high": high,
            "player_kind": self.player_kind,
        }


@dataclass(frozen=True)
class FlatSpace:
    """A space as the engine sees it."""

    space: spaces.Space[Any]
    tree: Tree  # its leaves are indices into `leaves`; object leaf k is -1 - k
    leaves: list[ArrayLeaf]
    object_spaces: list[spaces.Space[Any]]


_HELD_DTYPES = frozenset(
    {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"}
)


def flatten(space: spaces.Space[Any]) -> FlatSpace:
    """The leaves of a space, and the tree that puts them together again."""
    leaves: list[ArrayLeaf] = []
    object_spaces: list[spaces.Space[Any]] = []

    def number(name: str, part: spaces.Space[Any]) -> int:
        leaf = _leaf_of(part, name)
        if leaf is None:
            object_spaces.append(part)
            return -len(object_spaces)
        leaves.append(leaf)
        return len(leaves) - 1

    parts = tree_of(space)
    names = paths(parts, "", lambda path, key: f"{path}.{key}" if path else str(key))
    return FlatSpace(space, map_trees(number, names, parts), leaves, object_spaces)


def _leaf_of(space: spaces.Space[Any], name: str) -> ArrayLeaf | None:
    if isinstance(space, spaces.Box) and space.dtype.name in _HELD_DTYPES:
        return _bounded(name, LeafKind.BOX, space, space.low, space.high)
    if isinstance(space, spaces.Discrete):
        start = np.asarray(space.start)
        return _bounded(name, LeafKind.DISCRETE, space, start, start + (space.n - 1))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start)
        return _bounded(name, LeafKind.MULTI_DISCRETE, space, start, start + (space.nvec - 1))
    if isinstance(space, spaces.MultiBinary):
        return ArrayLeaf(name, LeafKind.MULTI_BINARY, space.dtype.name, space.shape, [0.0], [1.0])
    return None


def _bounded(name: str, kind: LeafKind, space: Any, low: np.ndarray, high: np.ndarray) -> ArrayLeaf:
    bounds = _bounds(low), _bounds(high)
    low_floats, high_floats = ([float(bound) for bound in end] for end in bounds)
    whole = bounds if low.dtype.kind in "iu" else None
    return ArrayLeaf(name, kind, np.dtype(space.dtype).name, space.shape, low_floats, high_floats, whole_bounds=whole)


def _bounds(array: np.ndarray) -> list[Any]:
    """The values, or one number if all are equal: images have thousands of them."""
    flat = array.ravel()
    if flat.size and (flat == flat[0]).all():
        flat = flat[:1]
    return flat.tolist() or [0]


_TREE_SINGLE, _TREE_TUPLE, _TREE_DICT = range(3)


def native_tree(kind: int, leaves: list[dict[str, Any]]) -> Tree:
    """The tree of a native env's leaves, from the ``Tree`` of ``cpp/core/env/spec.h``."""
    if kind == _TREE_SINGLE:
        return 0
    if kind == _TREE_TUPLE:
        return tuple(range(len(leaves)))
    return {leaf["name"]: i for i, leaf in enumerate(leaves)}


def space_of(tree: Tree, leaves: list[dict[str, Any]]) -> spaces.Space[Any]:
    """The Gymnasium space of a native env's leaves."""
    return space_from(map_tree(lambda index: _space_of_leaf(leaves[index]), tree))


def info_space_of(leaves: list[dict[str, Any]]) -> spaces.Dict:
    """The space of a native env's own infos."""
    return spaces.Dict({leaf["name"]: _space_of_leaf(leaf) for leaf in leaves})


def _space_of_leaf(leaf: dict[str, Any]) -> spaces.Space[Any]:
    kind, dtype, shape = LeafKind(leaf["kind"]), np.dtype(leaf["dtype"]), tuple(leaf["shape"])
    low, high = np.asarray(leaf["low"]), np.asarray(leaf["high"])
    if kind is LeafKind.DISCRETE:
        return spaces.Discrete(int(high[0]) - int(low[0]) + 1, start=int(low[0]))
    if kind is LeafKind.MULTI_BINARY:
        return spaces.MultiBinary(shape)
    low, high = _spread(low, shape, dtype), _spread(high, shape, dtype)
    if kind is LeafKind.MULTI_DISCRETE:
        return spaces.MultiDiscrete(high - low + 1, dtype=dtype.type, start=low)
    return spaces.Box(low, high, shape, dtype.type)


def _spread(bounds: np.ndarray, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    """The inverse of ``_bounds``: one number counts for all elements. Whole numbers end where their type does."""
    if dtype.kind in "iu":
        limits, given = np.iinfo(dtype), bounds
        bounds = np.full(given.shape, limits.max, dtype)
        is_less = given < float(limits.max)  # which of 64 bits is a float only from 2**63, or 2**64, on
        bounds[is_less] = np.maximum(given[is_less], limits.min)
    bounds = bounds.astype(dtype)
    return np.full(shape, bounds[0]) if bounds.size == 1 else bounds.reshape(shape)


def spec_of(space: spaces.Space[Any], name: str) -> Any:
    """A space as dm_env specs, nested like the space."""
    parts = tree_of(space)
    names = paths(parts, name, lambda path, key: f"{path}_{key}" if isinstance(key, int) else str(key))
    return map_trees(_spec_of_leaf, names, parts)


def _spec_of_leaf(name: str, space: spaces.Space[Any]) -> Any:
    from dm_env import specs

    if isinstance(space, spaces.Discrete):
        if int(space.start) == 0:
            return specs.DiscreteArray(int(space.n), dtype=np.int64, name=name)
        return specs.BoundedArray((), np.int64, int(space.start), int(space.start + space.n) - 1, name)
    if isinstance(space, spaces.Box):
        return specs.BoundedArray(space.shape, space.dtype, space.low, space.high, name)
    if isinstance(space, spaces.MultiDiscrete):
        return specs.BoundedArray(space.shape, space.dtype, space.start, space.start + space.nvec - 1, name)
    if isinstance(space, spaces.MultiBinary):
        return specs.BoundedArray(space.shape, space.dtype, 0, 1, name)
    return specs.Array((), object, name)


def object_leaves(tree: Tree, value: Any) -> Iterator[Any]:
    """The values at the object leaves of a nested value, in the order of the leaves."""
    if isinstance(tree, dict):  # without map_trees, which would build a tree
        for key, child in tree.items():
            yield from object_leaves(child, value[key])
    elif isinstance(tree, tuple):
        for child, part in zip(tree, value, strict=True):
            yield from object_leaves(child, part)
    elif tree < 0:
        yield value


def object_reader(tree: Tree) -> Callable[[Any], list[Any]]:
    """``object_leaves`` of a tree, for every step of an env: in a flat dict, which keys have objects is found once."""
    if isinstance(tree, dict) and not any(isinstance(child, dict | tuple) for child in tree.values()):
        keys = [key for key, leaf in tree.items() if leaf < 0]
        return lambda value: [value[key] for key in keys]
    return lambda value: list(object_leaves(tree, value))


def map_object_leaves(tree: Tree, value: Any, objects: list[Any]) -> Any:
    """``value`` with the object leaves taken from ``objects``."""
    return map_trees(lambda leaf, part: objects[-1 - leaf] if leaf < 0 else part, tree, value)


# ---- what no other space describes ---------------------------------------------------------------


class AnyValue(spaces.Space[Any]):
    """Contains everything. Its values are not arrays, so they travel pickled."""

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyValue)

    def __repr__(self) -> str:
        """It has no arguments."""
        return "AnyValue()"
