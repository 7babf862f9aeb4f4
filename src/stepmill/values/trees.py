"""Nested values: one walk over all of them.

A tree is a leaf, or a dict or tuple of trees; whatever is neither dict nor tuple is a leaf. A space becomes a tree with
the spaces at its leaves, so that a space and a value of it, or the arrays of a batch, are walked side by side.

``values/fitting.py`` checks whether a value from outside has the form of its space; the trees here are trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gymnasium import spaces

Tree = Any


# Both maps check whether a child is a leaf before they descend: one more call per leaf would double their cost, and
# they run in every step.
_NODES = (dict, tuple)


def map_tree(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """A tree of ``function(leaf)``. Named tuples keep their type."""
    if isinstance(tree, dict):
        return {
            key: map_tree(function, child) if isinstance(child, _NODES) else function(child)
            for key, child in tree.items()
        }
    if isinstance(tree, tuple):
        parts = [map_tree(function, child) if isinstance(child, _NODES) else function(child) for child in tree]
        return tree._make(parts) if hasattr(tree, "_make") else tuple(parts)
    return function(tree)


def map_trees(function: Callable[[Any, Any], Any], tree: Tree, other: Any) -> Tree:
    """A tree of ``function(leaf, part)``: the other is read by the keys of the first, and may have more keys.

    Raises KeyError, TypeError or ValueError if the forms differ.
    """
    if isinstance(tree, dict):
        return {
            key: map_trees(function, child, other[key]) if isinstance(child, _NODES) else function(child, other[key])
            for key, child in tree.items()
        }
    if isinstance(tree, tuple):
        return tuple(
            [
                map_trees(function, child, part) if isinstance(child, _NODES) else function(child, part)
                for child, part in zip(tree, other, strict=True)
            ]
        )
    return function(tree, other)


def leaves(tree: Tree) -> Iterator[Any]:
    """The leaves, in order."""
    if isinstance(tree, dict | tuple):
        for child in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(child)
    else:
        yield tree


def step_into(path: str, key: Any) -> str:
    """The path of a part as Python writes it: ``observation['eye'][0]``."""
    return f"{path}[{key!r}]"


def paths(tree: Tree, path: str = "", step: Callable[[str, Any], str] = step_into) -> Tree:
    """The same tree with the path of each leaf instead of the leaf."""
    if isinstance(tree, dict):
        return {key: paths(child, step(path, key), step) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(paths(child, step(path, i), step) for i, child in enumerate(tree))
    return path


def as_tree(value: Any) -> Tree:
    """Any mappings as dicts, lists as tuples: as in the values of Gymnasium's spaces."""
    if hasattr(value, "items"):
        return {key: as_tree(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return tuple(as_tree(child) for child in value)
    return value


# ---- spaces --------------------------------------------------------------------------------------


def tree_of(space: Any, kinds: Any = spaces) -> Tree:
    """A Dict as a dict, a Tuple as a tuple, any other space as a leaf. ``kinds`` is the module with these classes."""
    if isinstance(space, kinds.Dict):
        return {key: tree_of(child, kinds) for key, child in space.spaces.items()}
    if isinstance(space, kinds.Tuple):
        return tuple(tree_of(child, kinds) for child in space.spaces)
    return space


def space_from(tree: Tree) -> spaces.Space[Any]:
    """The space of a tree of spaces. A Dict sorts its keys, as Gymnasium does."""
    if isinstance(tree, dict):
        return spaces.Dict({key: space_from(child) for key, child in tree.items()})
    if isinstance(tree, tuple):
        return spaces.Tuple([space_from(child) for child in tree])
    space: spaces.Space[Any] = tree
    return space
