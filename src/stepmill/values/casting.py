"""Whatever an env or a policy gives as numbers: as an array of the right type, or described for an error message."""

from __future__ import annotations

from typing import Any

import numpy as np

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
