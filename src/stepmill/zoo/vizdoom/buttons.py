"""Combinations of buttons, numbered: what ``use_combined_action`` chooses from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from stepmill.errors import ConfigError
from stepmill.values.arguments import real_number, whole_number

__all__ = ["combinations", "read_delta_config"]

# Buttons of which at most one is pressed at a time.
_OPPOSITES = (
    ("MOVE_RIGHT", "MOVE_LEFT"),
    ("MOVE_BACKWARD", "MOVE_FORWARD"),
    ("TURN_RIGHT", "TURN_LEFT"),
    ("LOOK_UP", "LOOK_DOWN"),
    ("MOVE_UP", "MOVE_DOWN"),
    ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON"),
    ("SELECT_NEXT_ITEM", "SELECT_PREV_ITEM"),
)
_WEAPONS = tuple(f"SELECT_WEAPON{i}" for i in (*range(1, 10), 0))
_MOST = 1_000_000

DeltaConfig = Mapping[str, tuple[int, float, float]]
Choice = tuple[tuple[str, float], ...]  # buttons, and how far each is pressed


def combinations(available: Sequence[str], order: Sequence[str], force_speed: bool, deltas: DeltaConfig) -> np.ndarray:
    """One row per combination, one column per available button.

    Args:
        available: The scenario's buttons.
        order: All buttons that there are. The first ones change most slowly from row to row, as in EnvPool.
        force_speed: SPEED is pressed in every row.
        deltas: How many values a button takes that has values, and the first and last of them. Others stay at 0.
    """
    groups = _groups(available, order, force_speed, deltas)
    count = math.prod(len(one) for one in groups)
    if count > _MOST:
        raise ConfigError(
            f"use_combined_action: expected at most {_MOST} combinations of buttons, got {count}, of {len(available)} "
            "buttons: give the scenario fewer of them, or delta_button_config fewer values"
        )
    column = {name: i for i, name in enumerate(available)}
    rows = np.zeros((count, len(available)))
    for row, choices in zip(rows, itertools.product(*groups), strict=True):
        for name, value in itertools.chain(*choices):
            row[column[name]] = value
    return rows


def _groups(
    available: Sequence[str], order: Sequence[str], force_speed: bool, deltas: DeltaConfig
) -> list[list[Choice]]:
    """The choices of each group of buttons, of which one is made at a time."""
    groups: list[list[Choice]] = []
    done: set[str] = set()
    for name in order:
        if name not in available or name in done:
            continue
        if name == "SPEED" and force_speed:
            groups.append([((name, 1.0),)])
        elif name.endswith("_DELTA"):
            if name in deltas:
                count, low, high = deltas[name]
                groups.append([((name, float(value)),) for value in np.linspace(low, high, count)])
        else:
            together = [one for one in _exclusive(name) if one in available]
            groups.append([(), *(((one, 1.0),) for one in together)])
            done.update(together)
    return groups


def _exclusive(name: str) -> tuple[str, ...]:
    return next((one for one in (*_OPPOSITES, _WEAPONS) if name in one), (name,))


def read_delta_config(given: Any, available: Sequence[str]) -> DeltaConfig:
    """Checks ``delta_button_config``."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"delta_button_config: expected a dict of (number, first, last) by button, got {given!r}")
    known = [name for name in available if name.endswith("_DELTA")]
    read = {}
    for name, values in given.items():
        if name not in known:
            raise ConfigError(
                f"delta_button_config: expected buttons with values that the scenario has, which are "
                f"{', '.join(known) or 'none'}, got {name!r}"
            )
        if not isinstance(values, Sequence) or len(values) != 3:
            raise ConfigError(f"delta_button_config[{name!r}]: expected (number, first, last), got {values!r}")
        where = f"delta_button_config[{name!r}]"
        read[name] = whole_number(where, values[0], 2), real_number(where, values[1]), real_number(where, values[2])
    return read
