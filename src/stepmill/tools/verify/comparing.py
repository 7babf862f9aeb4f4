"""Finds the first part in which what a pool returned for an env differs from what its twin returned.

Numbers are compared bit for bit: 0.0 is not -0.0, float32 is not float64. Only NaN equals every other NaN.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from stepmill.values.trees import map_tree, step_into


class _Nothing(enum.Enum):
    NOTHING = "nothing"

    def __repr__(self) -> str:
        return self.value

    __str__ = __repr__


NOTHING: Final = _Nothing.NOTHING
"""Stands for a value that only the other side has. None could be a value."""


class Mismatch(NamedTuple):
    """The path of the first part that differs, and this part on both sides."""

    field: str
    ours: Any
    theirs: Any


def mismatch(path: str, ours: Any, theirs: Any) -> Mismatch | None:
    """The first difference of two values, each of them numbers, arrays, or dicts and tuples of these."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in dict.fromkeys([*theirs, *ours]):
            found = mismatch(step_into(path, key), ours.get(key, NOTHING), theirs.get(key, NOTHING))
            if found is not None:
                return found
        return None
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs):
        parts = (mismatch(step_into(path, i), *pair) for i, pair in enumerate(zip(ours, theirs, strict=True)))
        return next((found for found in parts if found is not None), None)
    if isinstance(ours, bool | int | float | np.generic | np.ndarray):
        return _number_mismatch(path, np.asarray(ours), theirs)
    return None if type(ours) is type(theirs) and ours == theirs else Mismatch(path, ours, theirs)


def _number_mismatch(path: str, ours: np.ndarray, theirs: Any) -> Mismatch | None:
    # An int has no dtype, and Gymnasium's infos mix 1 and 1.0. A whole number that the user gave for a float stays one.
    if type(theirs) is int or (isinstance(theirs, np.integer) and ours.dtype == np.float64):
        may_hold = ours.ndim == 0 and (ours.dtype.kind in "iu" or ours.dtype == np.float64)
        return None if may_hold and ours.item() == theirs else Mismatch(path, ours[()], theirs)
    if not isinstance(theirs, bool | float | np.generic | np.ndarray):
        return Mismatch(path, ours[()], theirs)
    other = np.asarray(theirs)
    if ours.shape != other.shape:
        return Mismatch(f"{path}.shape", ours.shape, other.shape)
    if ours.dtype != other.dtype:
        return Mismatch(f"{path}.dtype", ours.dtype, other.dtype)
    if ours.tobytes() == other.tobytes():
        return None
    for index in np.ndindex(ours.shape):
        a, b = ours[index], other[index]
        if a.tobytes() != b.tobytes() and not (a != a and b != b):
            return Mismatch(f"{path}[{', '.join(map(str, index))}]" if index else path, a, b)
    return None  # they only write NaN in different ways


# ---- rows of a batch -----------------------------------------------------------------------------


def column_mismatch(path: str, columns: Any, row: int, theirs: Any) -> Mismatch | None:
    """The first difference between one row of a batch and a single value."""
    return mismatch(path, _row(columns, row), theirs)


def info_mismatch(
    path: str, columns: Mapping[Any, Any], row: int, own: Mapping[Any, Any], left_out: frozenset[str] = frozenset()
) -> Mismatch | None:
    """The first difference between one row of the info of a batch and the info of a single env.

    The row has a key if the mask ``_key`` says so. A key that no row has must not be there at all.
    """
    for key, value in own.items():
        if key in left_out:
            continue
        found = _key_mismatch(path, columns, row, key, value)
        if found is not None:
            return found
    for key, column in columns.items():
        if key in own or key in left_out or _is_mask(key, columns):
            continue
        mask = columns.get(f"_{key}")
        if mask is None or mask[row] or not mask.any():
            return Mismatch(step_into(path, key), _row(column, row), NOTHING)
    return None


def _key_mismatch(path: str, columns: Mapping[Any, Any], row: int, key: Any, value: Any) -> Mismatch | None:
    if key not in columns:
        return Mismatch(step_into(path, key), NOTHING, value)
    mask = columns.get(f"_{key}")
    if mask is None:
        return Mismatch(step_into(path, f"_{key}"), NOTHING, True)
    if not mask[row]:
        return Mismatch(step_into(path, key), NOTHING, value)
    if isinstance(columns[key], dict) and isinstance(value, Mapping):
        return info_mismatch(step_into(path, key), columns[key], row, value)
    return column_mismatch(step_into(path, key), columns[key], row, value)


def _is_mask(key: Any, columns: Mapping[Any, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in columns


def _row(columns: Any, row: int) -> Any:
    return map_tree(lambda column: column[row], columns)
