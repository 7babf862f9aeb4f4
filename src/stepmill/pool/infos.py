"""Info dicts of single envs to the info of a batch: Gymnasium's layout.

Every key becomes an array with a row an env, beside a mask ``_key`` that says which rows have it.
Numbers and arrays become arrays of their type, dicts nest, anything else is kept as objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["ENGINE_KEYS", "add_info"]

# What the engine says of a batch. An env's own key of the same name is left out.
ENGINE_KEYS = frozenset(
    {"env_id", "players", "elapsed_step", "episode_return", "episode_length", "final_obs", "final_info", "abnormal"}
)


def add_info(
    batch: dict[str, Any],
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    count: int,
    taken: frozenset[str] = frozenset(),
) -> None:
    """Adds the infos of some rows of a batch of ``count`` to ``batch``, but for the keys ``taken``."""
    for row, info in rows:
        for key, value in info.items():
            if key not in taken:
                _add(batch, key, value, row, count)


def _add(batch: dict[str, Any], key: str, value: Any, row: int, count: int) -> None:
    mask = batch.setdefault(f"_{key}", np.zeros(count, np.bool_))
    if isinstance(value, dict):
        nested = batch.setdefault(key, {})
        if isinstance(nested, dict):
            add_info(nested, [(row, value)], count)
            mask[row] = True
            return
    array = batch.get(key)
    if array is None:
        array = batch[key] = _column(value, count)
    elif isinstance(array, dict) or not _holds(array, value):
        array = batch[key] = _as_objects(array, mask)
    array[row] = value
    mask[row] = True


def _column(value: Any, count: int) -> np.ndarray:
    if type(value) is int and not -(2**63) <= value < 2**63:
        return np.full(count, None, object)
    if type(value) in (bool, int, float) or isinstance(value, np.number | np.bool_):
        return np.zeros(count, type(value))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.zeros((count, *value.shape), value.dtype)
    return np.full(count, None, object)


def _holds(array: np.ndarray, value: Any) -> bool:
    """Whether the column can take the value without losing anything."""
    if array.dtype == object:
        return True
    if not isinstance(value, bool | int | float | np.number | np.bool_ | np.ndarray):
        return False
    return np.shape(value) == array.shape[1:] and np.can_cast(np.asarray(value).dtype, array.dtype, "safe")


def _as_objects(array: Any, mask: np.ndarray) -> np.ndarray:
    """A column whose envs disagree on the type: keep every value as it is."""
    out = np.full(len(mask), None, object)
    for row in np.flatnonzero(mask):
        out[row] = array if isinstance(array, dict) else array[row]
    return out
