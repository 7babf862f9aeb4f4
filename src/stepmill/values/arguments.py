"""Checks of single arguments: each returns the value in the right type, or raises an error that says what was expected.

``name`` is the user's name for the argument: ``"num_envs"``, or ``"TimeLimit: max_episode_steps"``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepmill.errors import ConfigError

__all__ = ["one_of", "real_number", "seconds", "true_or_false", "whole_number"]


def whole_number(name: str, value: Any, low: int, high: int | None = None) -> int:
    """``value`` as an int in [low, high]."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise ConfigError(f"{name}: expected a whole number, got {value!r}") from None
    if number < low or (high is not None and number > high):
        bounds = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ConfigError(f"{name}: expected a whole number {bounds}, got {number}")
    return number


def real_number(name: str, value: Any, low: float = -math.inf, high: float = math.inf, *, above: bool = False) -> float:
    """``value`` as a finite float in [low, high]; ``above``: in (low, high]."""
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high or (above and value == low):
        bounds = "" if (low, high) == (-math.inf, math.inf) else f" {'>' if above else '>='} {low}"
        bounds += "" if high == math.inf else f" and <= {high}"
        raise ConfigError(f"{name}: expected a finite number{bounds}, got {value!r}")
    return float(value)


def seconds(name: str, value: Any) -> float:
    """A time in seconds, greater than 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError(f"{name}: expected a finite number of seconds > 0, got {value!r}")
    return float(value)


def true_or_false(name: str, value: Any) -> bool:
    """A bool, not just something truthy."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def one_of(name: str, value: Any, known: Sequence[str]) -> str:
    """One of the known words."""
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f"{name}: expected one of {', '.join(map(repr, known))}, got {value!r}")
    return value
