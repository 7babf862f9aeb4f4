"""What can be configured."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stepmill.envs.configs import read_cfg
from stepmill.errors import ConfigError

__all__ = ["CourierConfig"]


@dataclass(frozen=True)
class CourierConfig:
    """The town, the drone and the shift. Every town that is drawn can be served in time."""

    size: int = 9  # cells a side
    buildings: float = 0.2  # the share of cells that have one
    chargers: int = 2
    packages: int = 4
    capacity: int = 48  # of the battery: a cell costs 1, with a package 2
    charge: int = 12  # for one step on a charger
    max_steps: int = 250
    is_train: bool = True  # whether the reward helps along the way, or only pays deliveries

    @classmethod
    def of(cls, cfg: Any) -> CourierConfig:
        """Reads a cfg; None has the defaults. Keys of others are left alone."""
        defaults = asdict(cls())
        given = read_cfg("CourierEnv", {} if cfg is None else cfg, defaults=defaults)
        config = cls(**{name: _plain(given[name]) for name in defaults})
        config._check()
        return config

    def _check(self) -> None:
        self._expect_whole("size", 5, 32)
        self._expect_whole("chargers", 1, 4)
        # Chargers, packages and addresses have a cell each: enough must be left for a town around them.
        self._expect_whole("packages", 1, min((self.size**2 // 3 - self.chargers) // 2, 100))
        self._expect_whole("capacity", 4 * self.size, 10_000)  # less, and hardly any town could be served
        self._expect_whole("charge", 1, 10_000)
        # One round for each package, on a battery, and the time to fill it again.
        round_steps = self.capacity + -(-self.capacity // self.charge)
        self._expect_whole("max_steps", self.packages * round_steps, 1_000_000)
        share = self.buildings
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 0.3:
            raise ConfigError(f"CourierEnv: buildings: expected a share from 0 to 0.3, got {share!r}")
        if not isinstance(self.is_train, bool):
            raise ConfigError(f"CourierEnv: is_train: expected True or False, got {self.is_train!r}")

    def _expect_whole(self, name: str, least: int, most: int) -> None:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"CourierEnv: {name}: expected a whole number from {least} to {most}, got {value!r}")


def _plain(value: Any) -> Any:
    """Python's number for one of numpy, which would make numpy's of all that is computed with it, ``done`` too."""
    return value.item() if isinstance(value, np.generic) else value
