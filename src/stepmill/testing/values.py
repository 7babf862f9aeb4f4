"""Compares nested values with their spaces and with each other, and describes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from stepmill.values.fitting import form_of, has_form, holds_arrays
from stepmill.values.trees import Tree, as_tree, paths, step_into, tree_of
from stepmill.values.trees import leaves as leaves_of


class Leaf(NamedTuple):
    """A value and its space."""

    path: str
    space: spaces.Space[Any]
    value: Any


class WrongForm(NamedTuple):
    """A value that does not have the form of its space."""

    path: str
    expected: str
    got: str


def _walk(tree: Tree, value: Any, path: str) -> Iterator[Leaf | WrongForm]:
    if isinstance(tree, dict | tuple):
        if not has_form(tree, value):
            yield WrongForm(path, form_of(tree), _got(value))
        elif isinstance(value, list):  # pools accept lists, a Tuple space does not contain them
            yield WrongForm(path, "a tuple", "a list")
        else:
            for key, child in tree.items() if isinstance(tree, dict) else enumerate(tree):
                yield from _walk(child, value[key], step_into(path, key))
    elif holds_arrays(tree) and not isinstance(value, np.ndarray):
        yield WrongForm(path, "an np.ndarray", kind_of(value))
    else:
        yield Leaf(path, tree, value)


def _got(value: Any) -> str:
    if isinstance(value, Mapping):
        return form_of(value)
    return f"{kind_of(value)} of {len(value)}" if isinstance(value, tuple | list) else kind_of(value)


def leaves(space: spaces.Space[Any], value: Any, path: str) -> list[Leaf]:
    """The parts of a value that have the form of the space."""
    return [one for one in _walk(tree_of(space), value, path) if isinstance(one, Leaf)]


def mismatches(space: spaces.Space[Any], value: Any, path: str) -> list[WrongForm]:
    """The parts of a value that do not."""
    return [one for one in _walk(tree_of(space), value, path) if isinstance(one, WrongForm)]


def outside(space: spaces.Space[Any], value: Any) -> str | None:
    """The first element outside the bounds of its space, in words. NaN does not count."""
    if not holds_arrays(space):
        return None if space.contains(value) else show(value)
    low, high = bounds(space)
    beyond = np.atleast_1d((value < low) | (value > high))
    if not beyond.any():
        return None
    index = tuple(int(i) for i in np.argwhere(beyond)[0])
    number = np.atleast_1d(value)[index]
    return f"{number}" if value.ndim == 0 else f"{number} at [{', '.join(map(str, index))}]"


def bounds(space: Any) -> tuple[Any, Any]:
    """The smallest and the largest value of a space of arrays."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    return space.start, space.start + (space.n if isinstance(space, spaces.Discrete) else space.nvec) - 1


def arrays_in(value: Any, path: str) -> Iterator[tuple[str, np.ndarray]]:
    """Every array in a nested value, whatever its space."""
    tree = as_tree(value)
    for place, leaf in zip(leaves_of(paths(tree, path)), leaves_of(tree), strict=True):
        if isinstance(leaf, np.ndarray):
            yield place, leaf


def digest(value: Any) -> tuple[Any, ...]:
    """Something to compare later with ``==``: equal if two values are equal bit for bit."""
    if isinstance(value, np.ndarray):
        data = value.tolist() if value.dtype.hasobject else hash(value.tobytes())
        return (value.dtype.str, value.shape, repr(data))
    if isinstance(value, Mapping):
        return tuple((str(key), digest(child)) for key, child in value.items())
    if isinstance(value, tuple | list):
        return tuple(digest(child) for child in value)
    # The default repr shows an address.
    return (type(value).__name__, "" if _is_plain(value, "__repr__") else text_of(value))


def same(one: Any, other: Any) -> bool:
    """Whether two nested values are equal, including their arrays."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and digest(one) == digest(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if _is_plain(one, "__eq__"):  # no copy would be equal, so only the type counts
        return type(one) is type(other)
    try:
        return one is other or bool(one == other)
    except Exception:
        return True


def _is_plain(value: Any, method: str) -> bool:
    return getattr(type(value), method) is getattr(object, method)


def kind_of(value: Any) -> str:
    """``a list``, ``None``."""
    return "None" if value is None else f"{_article(type(value).__name__)} {type(value).__name__}"


def text_of(value: Any) -> str:
    """The repr of a value, even if it raises."""
    try:
        return repr(value)
    except Exception as error:
        return f"{kind_of(value)} whose repr raises {type(error).__name__}"


def show(value: Any) -> str:
    """A value in a few words."""
    text = text_of(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _article(noun: str) -> str:
    return "an" if noun[0].lower() in "aeio" else "a"
