"""Whether a value fits its space: the one place that decides, and that words the error if it does not.

A space is read once into a tree (``trees.py``) with whatever the caller needs at its leaves; ``fit`` compares values
with that tree. Bounds of a Box are not checked here: observations outside them are common, and for actions the env
decides, as in Gymnasium.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import StepmillError
from stepmill.values.trees import Tree, step_into


class Misfit(Exception):
    """A value that does not fit. Stays inside the package: callers raise their own error with its ``message``."""

    def __init__(self, expected: Any, got: Any) -> None:
        super().__init__(expected, got)
        self.expected = str(expected)
        self.got = got
        self.keys: list[Any] = []  # from the innermost out

    def message(self, name: str) -> str:
        """``observation['eye']: expected numbers of shape (2,) and type float32, got None``."""
        for key in reversed(self.keys):
            name = step_into(name, key)
        got = form_of(self.got) if isinstance(self.got, Mapping) else description(self.got)
        return f"{name}: expected {self.expected}, got {got}"


def fit(function: Callable[[Any, Any], Any], tree: Tree, value: Any, spare: bool = False) -> Any:
    """A tree of ``function(leaf, part)``, with the part of the value that belongs to each leaf.

    Mappings count as dicts, and lists as tuples. Raises ``Misfit``, as ``function`` may too, if the value and the tree
    differ in form. ``spare``: dicts may have more keys than the tree, as observations in pools may.
    """
    if type(tree) not in _NODES:
        return function(tree, value)
    if not has_form(tree, value, spare):
        raise Misfit(form_of(tree), value)
    key: Any = None  # of the current part
    try:
        if type(tree) is dict:
            out = {}
            for key, child in tree.items():  # checks before it descends into a child, as trees.map_tree does
                part = value[key]
                out[key] = fit(function, child, part, spare) if type(child) in _NODES else function(child, part)
            return out
        parts = []
        for key, child in enumerate(tree):
            part = value[key]
            parts.append(fit(function, child, part, spare) if type(child) in _NODES else function(child, part))
        return tuple(parts)
    except Misfit as misfit:
        misfit.keys.append(key)
        raise


# Constants: building a union at each check takes longer than the check.
_NODES = (dict, tuple)
_SEQUENCES = (tuple, list)
_MAPPINGS = (dict, Mapping)
_OF_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


def fits(accepts: Callable[[Any, Any], bool], tree: Tree, value: Any) -> bool:
    """Whether a value has the form of the tree and ``accepts(leaf, part)`` is true for every part."""
    if type(tree) not in _NODES:
        return accepts(tree, value)
    if not has_form(tree, value):
        return False
    for key, child in tree.items() if type(tree) is dict else enumerate(tree):
        part = value[key]
        if not (fits(accepts, child, part) if type(child) in _NODES else accepts(child, part)):
            return False
    return True


def has_form(tree: Tree, value: Any, spare: bool = False) -> bool:
    """Whether a value fits a dict or tuple; its parts are not checked."""
    if type(tree) is tuple:
        return isinstance(value, _SEQUENCES) and len(value) == len(tree)
    return isinstance(value, _MAPPINGS) and (value.keys() == tree.keys() or (spare and value.keys() >= tree.keys()))


def form_of(value: Any) -> str:
    """A mapping or a tuple in words."""
    if not isinstance(value, Mapping):
        return f"a tuple of {len(value)} parts"
    return f"a dict with the keys {', '.join(map(repr, value))}" if value else "an empty dict"


@dataclass(frozen=True)
class Fitter:
    """Applies the functions at the leaves of a tree to the parts of a value.

    A class, not a closure: envs are pickled together with their fitters.

    Args:
        tree: Has functions of one argument at its leaves.
        owner: Whose value it is, for the error message.
        name: What the value is, for the error message.
        error: The class of the error to raise.
    """

    tree: Tree
    owner: str
    name: str
    error: type[StepmillError]

    def __call__(self, value: Any) -> Any:
        try:
            return self.tree(value) if callable(self.tree) else fit(operator.call, self.tree, value)
        except Misfit as misfit:
            raise self.error(f"{self.owner}: {misfit.message(self.name)}") from None


# ---- leaves --------------------------------------------------------------------------------------


def holds_arrays(space: Any) -> bool:
    """Whether the values of a space are arrays of a fixed shape. Those of Text, Graph and Sequence are not."""
    return isinstance(space, _OF_ARRAYS)


def array_of(shape: tuple[int, ...], dtype: np.dtype[Any], value: Any, copy: bool = False) -> np.ndarray:
    """``value`` as an array of that shape and type. If it is one already, it is returned itself, or a ``copy``.

    As in pools, types are cast if no whole number changes.
    """
    if type(value) is np.ndarray and value.dtype == dtype and value.shape == shape:  # nearly always
        return value.copy() if copy else value
    array = as_numbers(value)
    if array is None or array.shape != shape:
        raise Misfit(f"numbers of shape {shape} and type {dtype}", value)
    if array.dtype == dtype:
        return array.copy() if copy else array
    fitting = cast(array, dtype)
    if fitting is None:
        raise Misfit(f"numbers of shape {shape} that {dtype} can hold", value)
    return fitting


def member_of(space: spaces.Space[Any], value: Any) -> np.ndarray:
    """Does what ``array_of`` does; the values of a Discrete, MultiDiscrete or MultiBinary must also be in range."""
    array = array_of(space.shape or (), np.dtype(space.dtype), value)
    if not isinstance(space, spaces.Box) and not space.contains(array):
        raise Misfit(space, value)
    return array


# ---- numbers -------------------------------------------------------------------------------------
# Whatever an env or a policy gives as numbers: as an array of the right type, or described for an error message.

_SHORT = 80


def as_numbers(value: Any) -> np.ndarray | None:
    """``value`` as an array; None if it is not numeric."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):  # ragged, or a tensor that numpy cannot read
        return None
    return array if array.dtype.kind in "biuf" else None


def cast(value: Any, dtype: np.dtype[Any]) -> np.ndarray | None:
    """A copy of ``value`` as an array of ``dtype``; None if it is not numeric, or if a whole number would change.

    Floats lose digits if ``dtype`` has fewer.
    """
    given = as_numbers(value)
    if given is None or given.dtype == dtype:
        return None if given is None else given.copy()
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float32 is infinite
        array = given.astype(dtype)
    return None if dtype.kind in "biu" and not (array == given).all() else array


def description(value: Any) -> str:
    """A value in a few words, for an error message."""
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}" + (f": {value}" if value.size <= 8 else "")
    text = repr(value)
    if len(text) <= _SHORT:
        return text
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}: {text[:_SHORT]}..."
