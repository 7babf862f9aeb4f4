"""What an action of a preprocessed env presses, and what it is paid for: buttons and variables of the game."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from stepmill.errors import ConfigError

# ---- rewards ---------------------------------------------------------------------------------------

# EnvPool's: for each unit that a variable rises, and for each that it falls.
DEFAULT_REWARDS: Mapping[str, tuple[float, float]] = {
    "FRAGCOUNT": (1, -1.5),
    "KILLCOUNT": (1, 0),
    "DEATHCOUNT": (-0.75, 0.75),
    "HITCOUNT": (0.01, -0.01),
    "DAMAGECOUNT": (0.003, -0.003),
    "HEALTH": (0.005, -0.003),
    "ARMOR": (0.005, -0.001),
    **{f"WEAPON{i}": (0.02, -0.01) if i < 3 else (0.1, -0.05) if i < 6 else (0.2, -0.1) for i in range(8)},
    **{f"AMMO{i}": (0.0002, -0.0001) if i < 3 else (0.001, -0.0005) if i < 6 else (0.002, -0.001) for i in range(8)},
}
DEFAULT_WEAPON_REWARDS: Mapping[int, float] = {i: 0.0002 if i < 3 else 0.001 if i < 6 else 0.002 for i in range(8)}
# They go on from one episode to the next: https://github.com/Farama-Foundation/ViZDoom/issues/399
_SINCE_START = ("HITCOUNT", "DAMAGECOUNT", "DEATHCOUNT")
_MOST_AT_ONCE = {"DAMAGECOUNT": 200.0, "HITCOUNT": 5.0}  # or some weapons would pay too well


class GameReward:
    """Keeps the variables of a game from step to step.

    Args:
        names: The variables that are read, ``SELECTED_WEAPON`` and ``SELECTED_WEAPON_AMMO`` among them.
        rewards: For each unit that a variable rises or falls.
        weapons: For each step with a weapon in hand that has ammunition,
        duration: from the step on that is this many steps after it was taken, that step included.
    """

    def __init__(
        self,
        names: Sequence[str],
        rewards: Mapping[str, tuple[float, float]],
        weapons: Mapping[int, float],
        duration: int,
    ) -> None:
        self._names, self._weapons, self._duration = tuple(names), weapons, duration
        self._rewards = {name: rewards[name] for name in names if name in rewards}

    def begin(self, values: Sequence[float]) -> None:
        """An episode begins with these values of the variables."""
        self.values = dict(zip(self._names, values, strict=True))
        self._begin = {name: self.values[name] for name in _SINCE_START if name in self.values}
        self.values |= dict.fromkeys(self._begin, 0.0)
        if self.values.get("HEALTH", 0.0) < 0:
            self.values["HEALTH"] = 100.0
        self._weapon, self._held = -1, 0
        self._hold()

    def step(self, values: Sequence[float]) -> float:
        """The reward of a step after which the variables have these values."""
        before, after = self.values, dict(zip(self._names, values, strict=True))
        for name, begin in self._begin.items():
            after[name] -= begin
        if after.get("HEALTH", 0.0) < 0:  # -999900, or a blow that was more than deadly
            after["HEALTH"] = before["HEALTH"]
        self.values = after
        reward = 0.0
        for name, (rise, fall) in self._rewards.items():
            change = after[name] - before[name]
            reward += rise * min(change, _MOST_AT_ONCE.get(name, change)) if change > 0 else -fall * change
        return reward + self._hold()

    def _hold(self) -> float:
        weapon = int(self.values["SELECTED_WEAPON"])
        self._held = self._held + 1 if weapon == self._weapon else 1
        self._weapon = weapon
        if weapon < 0 or self._held < self._duration or self.values["SELECTED_WEAPON_AMMO"] <= 0:
            return 0.0
        return self._weapons.get(weapon, 0.0)


# ---- combined actions ------------------------------------------------------------------------------

# Buttons of which at most one is pressed at a time.
_EXCLUSIVE = (
    ("MOVE_RIGHT", "MOVE_LEFT"),
    ("MOVE_BACKWARD", "MOVE_FORWARD"),
    ("TURN_RIGHT", "TURN_LEFT"),
    ("LOOK_UP", "LOOK_DOWN"),
    ("MOVE_UP", "MOVE_DOWN"),
    ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON"),
    ("SELECT_NEXT_ITEM", "SELECT_PREV_ITEM"),
    tuple(f"SELECT_WEAPON{i}" for i in (*range(1, 10), 0)),
)
_MOST = 1_000_000
Choice = tuple[tuple[str, float], ...]  # buttons, and how far each is pressed


def combinations(
    available: Sequence[str], order: Sequence[str], force_speed: bool, deltas: Mapping[str, tuple[int, float, float]]
) -> np.ndarray:
    """All combinations of buttons, one per row, with a column per available button.

    Args:
        available: The scenario's buttons.
        order: All buttons that there are. The first ones change most slowly from row to row, as in EnvPool.
        force_speed: SPEED is pressed in every row.
        deltas: How many values a button takes that has values, and the first and last of them. Others stay at 0.
    """
    groups: list[list[Choice]] = []
    exclusive = {name: group for group in _EXCLUSIVE for name in group}
    seen: set[str] = set()
    for name in (one for one in order if one in available):
        if name.endswith("_DELTA"):
            values = np.linspace(*deltas[name][1:], deltas[name][0]).tolist() if name in deltas else [0.0]
            groups.append([((name, value),) for value in values])
        elif name not in seen:
            together = [one for one in exclusive.get(name, (name,)) if one in available]
            seen.update(together)
            pressed: list[Choice] = [((one, 1.0),) for one in together]
            groups.append(pressed if name == "SPEED" and force_speed else [(), *pressed])
    count = math.prod(map(len, groups))
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
