"""Numbers as vectors (one-hot in several ways, binary digits, position embeddings), and in another range.

All functions take arrays, or what numpy turns into one, and return float32 arrays. The vector of each value is the last
axis, so values of shape ``(3, 4)`` give ``(3, 4, num)``. Invalid values are an ``InputError``, other invalid arguments
a ``ConfigError``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from stepmill.errors import ConfigError, InputError, StepmillError
from stepmill.values.arguments import real_number, whole_number
from stepmill.values.fitting import as_numbers


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
    positions = _finite("get_position_vector", x)
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


def _numbers(owner: str, v: Any, error: type[StepmillError] = InputError) -> np.ndarray:
    values = as_numbers(v)
    if values is None:
        raise error(f"{owner}: expected numbers, got {v!r}")
    return values


def _finite(owner: str, v: Any) -> np.ndarray:
    values = _numbers(owner, v)
    if not np.isfinite(values).all():
        raise InputError(f"{owner}: expected finite numbers, got {values[~np.isfinite(values)].flat[0]}")
    return values


def _whole(owner: str, v: Any) -> np.ndarray:
    values = _finite(owner, v)
    if values.dtype.kind == "f":  # casting what does not fit in 64 bits would warn; clipped, it is found below
        whole = np.clip(values.astype(np.float64), -(2.0**62), 2.0**62).astype(np.int64)
    else:
        whole = values.astype(np.int64)
    wrong = whole != values
    if wrong.any():
        raise InputError(f"{owner}: expected whole numbers, got {values[wrong].flat[0]}")
    return whole


def _clipped(owner: str, v: Any, max_val: float) -> np.ndarray:
    return np.clip(_finite(owner, v).astype(np.float64), 0, max_val)


def _check_range(owner: str, values: np.ndarray, end: int) -> None:
    wrong = (values < 0) | (values >= end)
    if wrong.any():
        raise InputError(f"{owner}: expected values from 0 to {end - 1}, got {values[wrong].flat[0]}")


# ---- from one range to another -------------------------------------------------------------------


def div_func(inputs: Any, other: Any, unsqueeze_dim: int | None = 1) -> np.ndarray:
    """``inputs / other`` with a new axis of length 1 at ``unsqueeze_dim`` (None for none): one feature per column."""
    divisor = _floats("div_func: other", other, ConfigError)
    if np.any(divisor == 0):
        raise ConfigError(f"div_func: expected a divisor other than 0, got {other!r}")
    values = _floats("div_func: inputs", inputs)
    if unsqueeze_dim is not None:
        if not isinstance(unsqueeze_dim, int | np.integer) or not -values.ndim - 1 <= unsqueeze_dim <= values.ndim:
            raise ConfigError(
                f"div_func: unsqueeze_dim: expected one from {-values.ndim - 1} to {values.ndim} for inputs of shape "
                f"{values.shape}, got {unsqueeze_dim!r}"
            )
        values = np.expand_dims(values, unsqueeze_dim)
    _check_fit("div_func", inputs=values, other=divisor)
    return np.asarray(values / divisor, np.float32)


def affine_transform(
    data: Any,
    action_clip: bool = False,
    alpha: Any = None,
    beta: Any = None,
    min_val: Any = None,
    max_val: Any = None,
) -> np.ndarray:
    """``alpha * data + beta``, or from ``[-1, 1]`` to ``[min_val, max_val]``: from an agent's action to the env's.

    Args:
        data: An array, usually within ``[-1, 1]``.
        action_clip: Whether to clip the data to ``[-1, 1]`` first.
        alpha: The factor; a number, or an array with one for each element. Give it, or the two bounds.
        beta: The offset; 0 by default.
        min_val: What -1 becomes; a number, or an array such as a space's ``low``.
        max_val: What 1 becomes.
    """
    factor, offset = _factor_and_offset("affine_transform", alpha, beta, min_val, max_val)
    values = _floats("affine_transform: data", data)
    _check_fit("affine_transform", data=values, factor=factor, offset=offset)
    if action_clip:
        values = np.clip(values, -1.0, 1.0)
    return np.asarray(values * factor + offset, np.float32)


def inverse_affine_transform(
    data: Any, alpha: Any = None, beta: Any = None, min_val: Any = None, max_val: Any = None
) -> np.ndarray:
    """The inverse of ``affine_transform`` with the same arguments (apart from clipping)."""
    factor, offset = _factor_and_offset("inverse_affine_transform", alpha, beta, min_val, max_val)
    if np.any(factor == 0):
        raise ConfigError("inverse_affine_transform: expected a transform that has an inverse, got a factor of 0")
    values = _floats("inverse_affine_transform: data", data)
    _check_fit("inverse_affine_transform", data=values, factor=factor, offset=offset)
    return np.asarray((values - offset) / factor, np.float32)


def _factor_and_offset(owner: str, alpha: Any, beta: Any, min_val: Any, max_val: Any) -> tuple[np.ndarray, np.ndarray]:
    """In float64: 1 must become ``max_val`` itself, not a neighbouring float32 outside the space."""
    if (min_val is None) != (max_val is None) or (alpha is None) == (min_val is None):
        given = {"alpha": alpha, "beta": beta, "min_val": min_val, "max_val": max_val}
        names = [name for name, value in given.items() if value is not None]
        raise ConfigError(
            f"{owner}: expected alpha (and beta), or min_val and max_val, got {', '.join(names) or 'none'}"
        )
    if alpha is not None:
        beta = 0.0 if beta is None else beta
        return _floats(f"{owner}: alpha", alpha, ConfigError), _floats(f"{owner}: beta", beta, ConfigError)
    if beta is not None:
        raise ConfigError(f"{owner}: expected no beta beside min_val and max_val, got {beta!r}")
    low, high = (
        _floats(f"{owner}: {name}", bound, ConfigError) for name, bound in (("min_val", min_val), ("max_val", max_val))
    )
    _check_fit(owner, min_val=low, max_val=high)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.all(low <= high)):
        raise ConfigError(f"{owner}: expected finite bounds, min_val <= max_val, got {min_val!r} and {max_val!r}")
    return (high - low) / 2.0, (high + low) / 2.0


def _floats(name: str, value: Any, error: type[StepmillError] = InputError) -> np.ndarray:
    return _numbers(name, value, error).astype(np.float64, copy=False)


def _check_fit(owner: str, **arrays: np.ndarray) -> None:
    try:
        np.broadcast(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ConfigError(f"{owner}: expected shapes that fit each other, got {shapes}") from None
