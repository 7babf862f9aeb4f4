"""Checks of values for the fields of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepmill.errors import InputError
from stepmill.sources.models.fields import Field
from stepmill.values.casting import as_numbers, cast, description

_EXAMPLE = "{'body_mass': [...], 'opt.gravity': [0, 0, -9.81]}"


def check_names(fields: Any) -> Mapping[str, Any]:
    """A dict by the names of fields."""
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields):
        raise InputError(f"expected a dict of values by the names of fields, such as {_EXAMPLE}, got {fields!r:.200}")
    return fields


def read_values(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The values as arrays."""
    values = {}
    for name, value in fields.items():
        array = as_numbers(value)
        if array is None:
            raise InputError(f"field {name!r}: expected numbers, got {description(value)}")
        values[name] = array
    return values


def value_for(name: str, value: np.ndarray, field: Field, row: int = 0, rows: int = 0) -> np.ndarray:
    """A copy of the value of one env, of the field's type.

    ``rows``: the value may also have so many, one per env; then ``row`` is the one of this env.
    """
    where = f"field {name!r}"
    if field.fixed is not None:
        raise InputError(f"{where} cannot be set: {field.fixed}")
    if rows and value.shape == (rows, *field.shape):
        value = value[row]
    if value.shape != field.shape:
        either = f", or {(rows, *field.shape)} with a row per env" if rows else ""
        raise InputError(f"{where}: expected an array of shape {field.shape}{either}, got {description(value)}")
    result = cast(value, np.dtype(field.dtype))
    if result is None:
        raise InputError(f"{where}: expected values of type {field.dtype}, got {description(value)}")
    if not np.isfinite(result).all():
        raise InputError(f"{where}: expected finite {field.dtype} values, got {description(value)}")
    low, high = field.low, field.high
    if (low is not None and (result < low).any()) or (high is not None and (result > high).any()):
        bounds = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise InputError(f"{where}: expected values {bounds}, got {description(value)}")
    return result
