"""Converts the arrays in nested values, such as infos, all in one go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stepmill.views.outputs import Converter


def convert_nested(converter: Converter, value: Any) -> Any:
    """``value`` with what ``converter`` makes of its arrays of numbers.

    Arrays that are read-only, not contiguous or of another byte order are copied first: not every library has such
    arrays. Numbers of more than 64 bits stay as they are, like everything that is not a number.
    """
    arrays: list[np.ndarray] = []
    _replaced(value, lambda array: arrays.append(_ordinary(array)))
    made = iter(converter.convert(tuple(arrays)))
    return _replaced(value, lambda _: next(made))


def _ordinary(array: np.ndarray) -> np.ndarray:
    if array.flags.carray and array.dtype.isnative:
        return array
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def _replaced(value: Any, replace: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.kind in "biuf" and value.dtype.itemsize <= 8:
            return replace(np.asarray(value))
        return _replaced_objects(value, replace) if value.dtype == object else value
    if isinstance(value, dict):
        return {key: _replaced(child, replace) for key, child in value.items()}
    if isinstance(value, list | tuple):
        parts = [_replaced(child, replace) for child in value]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    return value


def _replaced_objects(objects: Any, replace: Callable[[np.ndarray], Any]) -> np.ndarray:
    out = np.empty(objects.shape, object)
    for place in np.ndindex(objects.shape):
        out[place] = _replaced(objects[place], replace)
    return out
