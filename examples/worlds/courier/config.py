"""The configuration."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stepmill.envs import read_cfg
from stepmill.values.arguments import real_number, true_or_false, whole_number

__all__ = ["CourierConfig"]


@dataclass(frozen=True)
class CourierConfig:
    """The town, the drone and the shift. Every town that is drawn can be solved in time."""

    size: int = 9  # cells per side
    buildings: float = 0.2  # the share of cells that have one
    chargers: int = 2
    packages: int = 4
    capacity: int = 48  # of the battery: a cell costs 1, with a package 2
    charge: int = 12  # for one step on a charger
    max_steps: int = 250
    is_train: bool = True  # whether there are rewards on the way, or only for deliveries

    @classmethod
    def of(cls, cfg: Any) -> CourierConfig:
        """Reads a cfg; None means the defaults. Other keys are ignored."""
        defaults = asdict(cls())
        given = read_cfg("CourierEnv", {} if cfg is None else cfg, defaults=defaults)
        config = cls(**{name: _plain(given[name]) for name in defaults})
        config._check()
        return config

    def _check(self) -> None:
        self._expect_whole("size", 5, 32)
        self._expect_whole("chargers", 1, 4)
        # Chargers, packages and addresses take one cell each: there must be room for a town around them.
        self._expect_whole("packages", 1, min((self.size**2 // 3 - self.chargers) // 2, 100))
        self._expect_whole("capacity", 4 * self.size, 10_000)  # with less, hardly any town could be solved
        self._expect_whole("charge", 1, 10_000)
        # One round for each package, on one battery, and the time to charge it again.
        round_steps = self.capacity + -(-self.capacity // self.charge)
        self._expect_whole("max_steps", self.packages * round_steps, 1_000_000)
        real_number("CourierEnv: buildings", self.buildings, 0, 0.3)
        true_or_false("CourierEnv: is_train", self.is_train)

    def _expect_whole(self, name: str, least: int, most: int) -> None:
        whole_number(f"CourierEnv: {name}", getattr(self, name), least, most)


def _plain(value: Any) -> Any:
    """A numpy number as a Python number: else everything computed with it would be numpy's, even ``done``."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and value.ndim == 0 else value
