"""Numbers as vectors: one-hot in several ways, binary digits, position embeddings.

They take arrays, or what numpy turns into one, and return float32 arrays. The vector of each value is the last axis, so
values of shape ``(3, 4)`` give ``(3, 4, num)``. Invalid values are an ``InputError``, other invalid arguments a
``ConfigError``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepmill.errors import ConfigError, InputError
from stepmill.values.arguments import real_number, whole_number
from stepmill.values.casting import as_numbers

__all__ = [
    "batch_binary_encode",
    "clip_one_hot",
    "div_one_hot",
    "get_position_vector",
    "get_postion_vector",
    "num_first_one_hot",
    "one_hot",
    "reorder_boolean_vector",
    "reorder_one_hot",
    "reorder_one_hot_array",
    "sqrt_one_hot",
]


def one_hot(v: Any, num: int, num_first: bool = False) -> np.ndarray:
    """A 1 at each value's place among ``num``. Values from 0 to ``num - 1``; ``num_first`` puts the new axis first."""
    rows = _rows("one_hot", _whole("one_hot", v), num)
    return np.ascontiguousarray(np.moveaxis(rows, -1, 0)) if num_first else rows


def num_first_one_hot(v: Any, num: int) -> np.ndarray:
    """``one_hot`` with the new axis first: planes of an image."""
    return one_hot(v, num, num_first=True)


def clip_one_hot(v: Any, num: int) -> np.ndarray:
    """One-hot of values that may be out of range: below 0 counts as 0, from ``num`` on as ``num - 1``."""
    whole_number("clip_one_hot: num", num, 1)
    return _rows("clip_one_hot", np.clip(_whole("clip_one_hot", v), 0, num - 1), num)


def sqrt_one_hot(v: Any, max_val: float) -> np.ndarray:
    """One-hot of the integer part of the square root: fine steps for small values, coarse ones for large.

    ``max_val`` says how many places there are, ``int(sqrt(max_val)) + 1``; values are clipped to ``[0, max_val]``.
    """
    real_number("sqrt_one_hot: max_val", max_val, 0, above=True)
    places = np.floor(np.sqrt(_clipped("sqrt_one_hot", v, max_val))).astype(np.int64)
    return _rows("sqrt_one_hot", places, int(math.sqrt(max_val)) + 1)


def div_one_hot(v: Any, max_val: float, ratio: float) -> np.ndarray:
    """One-hot of ``v // ratio``: places of equal width.

    ``max_val`` says how many places there are, ``int(max_val / ratio) + 1``; values are clipped to ``[0, max_val]``.
    """
    real_number("div_one_hot: max_val", max_val, 0, above=True)
    real_number("div_one_hot: ratio", ratio, 0, above=True)
    places = np.floor(_clipped("div_one_hot", v, max_val) / ratio).astype(np.int64)
    return _rows("div_one_hot", places, int(max_val / ratio) + 1)


def reorder_one_hot(v: Any, dictionary: Mapping[int, int], num: int, transform: Any = None) -> np.ndarray:
    """One-hot of values with gaps: ``dictionary`` has the place of each value, or of each ``transform[value]``."""
    return _rows("reorder_one_hot: places", _places("reorder_one_hot", v, dictionary, transform), num)


def reorder_one_hot_array(v: Any, array: Any, num: int, transform: Any = None) -> np.ndarray:
    """``reorder_one_hot`` with an array instead of a dictionary: faster for many values. -1 means no place."""
    owner = "reorder_one_hot_array"
    table = _table(f"{owner}: array", array)
    values = _transformed(owner, v, transform)
    _check_range(owner, values, len(table))
    places = table[values]
    if (places == -1).any():
        raise InputError(f"{owner}: expected values that the array has a place for, got {values[places == -1].flat[0]}")
    return _rows(f"{owner}: places", places, num)


def reorder_boolean_vector(v: Any, dictionary: Mapping[int, int], num: int, transform: Any = None) -> np.ndarray:
    """Which of ``num`` things occur in ``v``: its last axis becomes one vector with a 1 for each value in it."""
    places = _places("reorder_boolean_vector", v, dictionary, transform)
    if places.ndim == 0:
        raise InputError("reorder_boolean_vector: expected an array of at least one axis, got a single number")
    # Without any value there is no 1: a maximum over nothing needs the initial 0.
    return np.asarray(_rows("reorder_boolean_vector: places", places, num).max(axis=-2, initial=0.0))


def batch_binary_encode(x: Any, bit_num: int) -> np.ndarray:
    """The ``bit_num`` binary digits of each value, most significant first. Values from 0 to ``2**bit_num - 1``."""
    whole_number("batch_binary_encode: bit_num", bit_num, 1, 63)
    values = _whole("batch_binary_encode", x)
    _check_range("batch_binary_encode", values, 2**bit_num)
    return ((values[..., None] >> np.arange(bit_num - 1, -1, -1)) & 1).astype(np.float32)


def get_position_vector(x: Any) -> np.ndarray:
    """The position embedding of Transformers: 2k numbers for k positions.

    Position i gives ``sin`` and ``cos`` of ``x[i] / 10000 ** (2i / 2k)``, side by side.
    """
    positions = _numbers("get_position_vector", x)
    if positions.ndim == 0 or positions.shape[-1] == 0:
        raise InputError(f"get_position_vector: expected positions along the last axis, got {positions.shape}")
    count = positions.shape[-1]
    angles = positions / 10000.0 ** (np.arange(count) / count)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(*positions.shape[:-1], -1).astype(np.float32)


# DI-engine's spelling.
get_postion_vector = get_position_vector


# ---- inside --------------------------------------------------------------------------------------


def _rows(owner: str, places: np.ndarray, num: int) -> np.ndarray:
    whole_number(f"{owner}: num", num, 1)
    _check_range(owner, places, num)
    out = np.zeros((places.size, num), np.float32)
    out[np.arange(places.size), places.ravel()] = 1.0
    return out.reshape(*places.shape, num)


def _places(owner: str, v: Any, lookup: Mapping[int, int], transform: Any) -> np.ndarray:
    values = _transformed(owner, v, transform)
    for value in np.unique(values).tolist():
        if value not in lookup:
            raise InputError(f"{owner}: expected values among {list(lookup)}, got {value}")
    return np.array([lookup[value] for value in values.ravel().tolist()], np.int64).reshape(values.shape)


def _transformed(owner: str, v: Any, transform: Any) -> np.ndarray:
    values = _whole(owner, v)
    if transform is None:
        return values
    general = _table(f"{owner}: transform", transform)
    _check_range(f"{owner}: transform", values, len(general))
    return np.asarray(general[values])


def _table(name: str, values: Any) -> np.ndarray:
    try:
        table = _whole(name, values)
    except InputError as error:
        raise ConfigError(str(error)) from None
    if table.ndim != 1:
        raise ConfigError(f"{name}: expected an array of one axis, got {values!r}")
    return table


def _numbers(owner: str, v: Any) -> np.ndarray:
    values = as_numbers(v)
    if values is None:
        raise InputError(f"{owner}: expected numbers, got {v!r}")
    if not np.isfinite(values).all():
        raise InputError(f"{owner}: expected finite numbers, got {values[~np.isfinite(values)].flat[0]}")
    return values


def _whole(owner: str, v: Any) -> np.ndarray:
    values = _numbers(owner, v)
    if values.dtype.kind == "f":  # casting what does not fit in 64 bits would warn; clipped, it is found below
        whole = np.clip(values.astype(np.float64), -(2.0**62), 2.0**62).astype(np.int64)
    else:
        whole = values.astype(np.int64)
    wrong = whole != values
    if wrong.any():
        raise InputError(f"{owner}: expected whole numbers, got {values[wrong].flat[0]}")
    return whole


def _clipped(owner: str, v: Any, max_val: float) -> np.ndarray:
    return np.clip(_numbers(owner, v).astype(np.float64), 0, max_val)


def _check_range(owner: str, values: np.ndarray, end: int) -> None:
    wrong = (values < 0) | (values >= end)
    if wrong.any():
        raise InputError(f"{owner}: expected values from 0 to {end - 1}, got {values[wrong].flat[0]}")
