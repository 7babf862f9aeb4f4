"""Rewards from the game's variables: what ``reward_config`` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stepmill.errors import ConfigError
from stepmill.system.optional import VIZDOOM, require
from stepmill.values.arguments import real_number

__all__ = ["DEFAULT_REWARDS", "DEFAULT_WEAPON_REWARDS", "GameReward", "read_reward_config", "read_weapon_config"]

# EnvPool's: for each unit that a variable rises, and for each that it falls.
DEFAULT_REWARDS: Mapping[str, tuple[float, float]] = {
    "FRAGCOUNT": (1, -1.5),
    "KILLCOUNT": (1, 0),
    "DEATHCOUNT": (-0.75, 0.75),
    "HITCOUNT": (0.01, -0.01),
    "DAMAGECOUNT": (0.003, -0.003),
    "HEALTH": (0.005, -0.003),
    "ARMOR": (0.005, -0.001),
    **{f"WEAPON{i}": (0.02, -0.01) for i in (0, 1, 2)},
    **{f"WEAPON{i}": (0.1, -0.05) for i in (3, 4, 5)},
    **{f"WEAPON{i}": (0.2, -0.1) for i in (6, 7)},
    **{f"AMMO{i}": (0.0002, -0.0001) for i in (0, 1, 2)},
    **{f"AMMO{i}": (0.001, -0.0005) for i in (3, 4, 5)},
    **{f"AMMO{i}": (0.002, -0.001) for i in (6, 7)},
}
DEFAULT_WEAPON_REWARDS: Mapping[int, float] = {
    **dict.fromkeys((0, 1, 2), 0.0002),
    **dict.fromkeys((3, 4, 5), 0.001),
    **dict.fromkeys((6, 7), 0.002),
}
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
        self._names = tuple(names)
        self._rewards = {name: rewards[name] for name in names if name in rewards}
        self._weapons, self._duration = weapons, duration
        self._begin: dict[str, float] = {}
        self.values: dict[str, float] = {}
        self._weapon, self._held = -1, 0

    def begin(self, values: Sequence[float]) -> None:
        """An episode begins with these values of the variables."""
        read = dict(zip(self._names, values, strict=True))
        self._begin = {name: read[name] for name in _SINCE_START if name in read}
        read |= dict.fromkeys(self._begin, 0.0)
        if read.get("HEALTH", 0.0) < 0:
            read["HEALTH"] = 100.0
        self.values = read
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
            if change > 0:
                reward += rise * min(change, _MOST_AT_ONCE.get(name, change))
            elif change < 0:
                reward -= fall * change
        return reward + self._hold()

    def _hold(self) -> float:
        weapon = int(self.values["SELECTED_WEAPON"])
        self._held = self._held + 1 if weapon == self._weapon else 1
        self._weapon = weapon
        if weapon < 0 or self._held < self._duration or self.values["SELECTED_WEAPON_AMMO"] <= 0:
            return 0.0
        return self._weapons.get(weapon, 0.0)


def read_reward_config(name: str, given: Any) -> Any:
    """Checks ``reward_config``, under the name that it was given by: a dict, None or ``"default"``."""
    if given is None or (isinstance(given, str) and given == "default"):
        return given
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"{name}: expected a dict of (rise, fall) by game variable, 'default', or None for the scenario's own "
            f"reward, got {given!r}"
        )
    known = require(*VIZDOOM, name).GameVariable.__members__
    read = {}
    for variable, pair in given.items():
        if variable not in known:
            raise ConfigError(f"{name}: expected names of ViZDoom's game variables, such as 'HEALTH', got {variable!r}")
        if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
            raise ConfigError(f"{name}[{variable!r}]: expected (rise, fall), got {pair!r}")
        where = f"{name}[{variable!r}]"
        read[variable] = real_number(where, pair[0]), real_number(where, pair[1])
    return read


def read_weapon_config(given: Any) -> Mapping[int, float]:
    """Checks ``selected_weapon_reward_config``."""
    name = "selected_weapon_reward_config"
    if not isinstance(given, Mapping) or not all(isinstance(one, int) and 0 <= one <= 9 for one in given):
        raise ConfigError(f"{name}: expected a dict of rewards by weapon, 0 to 9, got {given!r}")
    return {int(weapon): real_number(f"{name}[{weapon}]", reward) for weapon, reward in given.items()}
