"""From the info of a batch, a dict of arrays, to a list with one dict per env, which is what SB3 reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["split_info"]


def split_info(
    info: Mapping[Any, Any],
    rows: list[dict[Any, Any]],
    which: Sequence[int] | None = None,
    taken: frozenset[str] = frozenset(),
) -> None:
    """Adds what the envs told to ``rows``: one dict per row of the batch, or one per row in ``which``.

    Numbers become Python's own, arrays are copied. Every key of an env has a mask ``_key`` beside it, which says which
    rows have it. The keys in ``taken`` are the engine's.
    """
    for key, column in info.items():
        if key in taken:
            continue
        mask = info.get(f"_{key}")
        if mask is None:  # it is a mask itself
            continue
        values, present = _values(column, len(mask)), mask.tolist()
        if which is not None:
            values, present = [values[i] for i in which], [present[i] for i in which]
        if all(present):
            for row, value in zip(rows, values, strict=True):
                row[key] = value
        else:
            for row, value, is_there in zip(rows, values, present, strict=True):
                if is_there:
                    row[key] = value


def _values(column: Any, count: int) -> list[Any]:
    if isinstance(column, dict):
        rows: list[dict[Any, Any]] = [{} for _ in range(count)]
        split_info(column, rows)
        return rows
    array: np.ndarray = column
    if array.ndim == 1:
        values: list[Any] = array.tolist()
        if array.dtype == object:  # of different types: numpy's numbers are still among them
            return [one.item() if isinstance(one, np.number | np.bool_) else one for one in values]
        return values
    return list(array.copy())  # a row that the caller keeps must not keep the whole batch
