"""Nested values beside their spaces, and the arrays in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

__all__ = [
    "Leaf",
    "Misfit",
    "arrays_in",
    "bounds",
    "digest",
    "is_array_space",
    "kind_of",
    "leaves",
    "misfits",
    "outside",
    "same",
    "show",
    "text_of",
]


class Leaf(NamedTuple):
    """A value and the space that it should be of."""

    path: str
    space: spaces.Space[Any]
    value: Any


class Misfit(NamedTuple):
    """A value whose form is not that of its space."""

    path: str
    expected: str
    got: str


def is_array_space(space: spaces.Space[Any]) -> bool:
    """Whether the values of a space are arrays of a fixed shape. Text, graphs and sequences are not."""
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary)


def _walk(space: spaces.Space[Any], value: Any, path: str) -> Iterator[Leaf | Misfit]:
    if isinstance(space, spaces.Dict):
        if not isinstance(value, Mapping):
            yield Misfit(path, "a dict", kind_of(value))
        elif set(value) != set(space.spaces):
            yield Misfit(path, f"the keys {_keys(space.spaces)}", _keys(value))
        else:
            for key, child in space.items():
                yield from _walk(child, value[key], f"{path}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple):
            yield Misfit(path, "a tuple", kind_of(value))
        elif len(value) != len(space.spaces):
            yield Misfit(path, f"a tuple of {len(space.spaces)}", f"one of {len(value)}")
        else:
            for i, child in enumerate(space.spaces):
                yield from _walk(child, value[i], f"{path}[{i}]")
    elif is_array_space(space) and not isinstance(value, np.ndarray):
        yield Misfit(path, "an np.ndarray", kind_of(value))
    else:
        yield Leaf(path, space, value)


def leaves(space: spaces.Space[Any], value: Any, path: str) -> list[Leaf]:
    """The parts of a value whose form is that of the space."""
    return [one for one in _walk(space, value, path) if isinstance(one, Leaf)]


def misfits(space: spaces.Space[Any], value: Any, path: str) -> list[Misfit]:
    """The parts whose form is another."""
    return [one for one in _walk(space, value, path) if isinstance(one, Misfit)]


def outside(space: spaces.Space[Any], value: Any) -> str | None:
    """The first element beyond the bounds of its space, in words. NaN is beyond none."""
    if not is_array_space(space):
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
    if isinstance(value, np.ndarray):
        yield path, value
    elif isinstance(value, Mapping):
        for key, child in value.items():
            yield from arrays_in(child, f"{path}[{key!r}]")
    elif isinstance(value, tuple | list):
        for i, child in enumerate(value):
            yield from arrays_in(child, f"{path}[{i}]")


def digest(value: Any) -> tuple[Any, ...]:
    """What can be compared later, by ``==``: equal where two values are equal to the bit."""
    if isinstance(value, np.ndarray):
        data = value.tolist() if value.dtype.hasobject else hash(value.tobytes())
        return (value.dtype.str, value.shape, repr(data))
    if isinstance(value, Mapping):
        return tuple((str(key), digest(child)) for key, child in value.items())
    if isinstance(value, tuple | list):
        return tuple(digest(child) for child in value)
    # The plain repr shows an address.
    return (type(value).__name__, "" if _is_plain(value, "__repr__") else text_of(value))


def same(one: Any, other: Any) -> bool:
    """Whether two nested values are equal; arrays in them too."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return type(one) is type(other) and digest(one) == digest(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return set(one) == set(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if _is_plain(one, "__eq__"):  # a copy of it is never equal: not ours to judge
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
    """Its repr, whatever that does."""
    try:
        return repr(value)
    except Exception as error:
        return f"{kind_of(value)} whose repr raises {type(error).__name__}"


def show(value: Any) -> str:
    """A value in few words."""
    text = text_of(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _article(noun: str) -> str:
    return "an" if noun[0].lower() in "aeio" else "a"


def _keys(mapping: Mapping[Any, Any]) -> str:
    return ", ".join(map(repr, mapping)) or "none"
