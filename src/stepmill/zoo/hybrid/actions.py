"""Hybrid actions: a choice of three, and the numbers that go with it.

Two forms, with the same meaning::

    (kind, power, angle)                                        three arrays, as Gymnasium's Tuple has them
    {"action_type": kind, "action_args": [power, angle]}        one choice, one array of all its arguments

All arguments are there for every choice; the env looks only at those of the kind chosen. A power or an angle beyond
its bounds counts as the bound, since a policy that samples from a bell curve oversteps them now and then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from stepmill.arguments import one_of
from stepmill.errors import ActionError, ActionTypeError

__all__ = ["ACCELERATE", "ACTION_FORMS", "BRAKE", "TURN", "HybridAction", "action_space", "read_action"]

ACCELERATE, TURN, BRAKE = range(3)
ACTION_FORMS = ("tuple", "dict")


class HybridAction(NamedTuple):
    """One action, its numbers within bounds."""

    kind: int
    power: float  # of ACCELERATE, from 0 to 1
    angle: float  # of TURN, from -1 (right) to 1 (left)


def action_space(owner: str, form: str) -> spaces.Space[Any]:
    """The space of one of the two forms."""
    one_of(f"{owner}: action_form", form, ACTION_FORMS)
    kinds = spaces.Discrete(3)
    if form == "tuple":
        return spaces.Tuple((kinds, spaces.Box(0, 1, (1,), np.float32), spaces.Box(-1, 1, (1,), np.float32)))
    low, high = np.array([0, -1], np.float32), np.array([1, 1], np.float32)
    return spaces.Dict({"action_type": kinds, "action_args": spaces.Box(low, high)})


def read_action(owner: str, form: str, action: Any) -> HybridAction:
    """An action of that form, or an error that says what it should have been."""
    if form == "tuple":
        if not isinstance(action, tuple | list) or len(action) != 3:
            raise ActionError(f"{owner}: action: expected (kind, power, angle), got {action!r}")
        kind, *arguments = action
    else:
        if not isinstance(action, Mapping) or not {"action_type", "action_args"} <= action.keys():
            raise ActionError(f"{owner}: action: expected a dict with action_type and action_args, got {action!r}")
        kind, arguments = action["action_type"], action["action_args"]
    power, angle = _numbers(owner, arguments)
    return HybridAction(_kind(owner, kind), min(max(power, 0.0), 1.0), min(max(angle, -1.0), 1.0))


def _kind(owner: str, value: Any) -> int:
    array = np.asarray(value)
    if array.dtype.kind not in "iu" or array.size != 1:
        raise ActionTypeError(f"{owner}: action: expected one whole number as its kind, got {value!r}")
    kind = int(array.item())
    if kind not in (ACCELERATE, TURN, BRAKE):
        raise ActionError(f"{owner}: action: expected 0 (accelerate), 1 (turn) or 2 (brake), got {kind}")
    return kind


def _numbers(owner: str, value: Any) -> tuple[float, float]:
    """Power and angle, from one array or from two."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ActionTypeError(f"{owner}: action: expected a power and an angle, got {value!r}") from None
    if array.size != 2 or not np.isfinite(array).all():
        raise ActionError(f"{owner}: action: expected a power and an angle, two finite numbers, got {value!r}")
    power, angle = array.ravel().tolist()
    return power, angle
