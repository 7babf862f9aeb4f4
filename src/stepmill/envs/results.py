"""Checks what an env returned before it is used. An error names the env, what was expected, and what came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepmill.casting import cast, description
from stepmill.errors import EnvError

__all__ = ["reset_parts", "rewards_of", "step_parts", "truth"]

_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")
_BOOL, _FLOAT = np.dtype(np.bool_), np.dtype(np.float64)


def reset_parts(owner: Any, result: Any) -> tuple[Any, Any]:
    """The observation and the info. An observation of two numbers is not mistaken for the pair."""
    _check(owner, "reset", _RESET, result)
    return result[0], result[1]


def step_parts(owner: Any, result: Any) -> tuple[Any, Any, Any, Any, Any]:
    """The five results of Gymnasium's ``step``."""
    _check(owner, "step", _STEP, result)
    return result[0], result[1], result[2], result[3], result[4]


def _check(owner: Any, call: str, names: tuple[str, ...], result: Any) -> None:
    expected = f"{owner}: {call}: expected ({', '.join(names)})"
    if not isinstance(result, tuple | list) or len(result) != len(names):
        raise EnvError(f"{expected}, got {description(result)}")
    if not isinstance(result[-1], Mapping):
        raise EnvError(f"{expected} with a dict as info, got {description(result[-1])} as info")


def rewards_of(owner: Any, reward: Any) -> np.ndarray:
    """One reward or several, as a float64 vector."""
    rewards = cast(reward, _FLOAT)
    if rewards is None or rewards.size == 0:
        raise EnvError(f"{owner}: step: expected one or more numbers as reward, got {description(reward)}")
    return rewards.reshape(-1)


def truth(owner: Any, name: str, value: Any) -> bool:
    """A flag of ``step``. Numbers and arrays of 0 or 1 are accepted."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    flag = cast(value, _BOOL)
    if flag is None or flag.size != 1:
        raise EnvError(f"{owner}: step: expected True or False as {name}, got {description(value)}")
    return bool(flag.item())
