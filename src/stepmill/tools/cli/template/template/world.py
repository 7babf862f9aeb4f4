"""The simulator: a boat, a river, a landing stage. It knows nothing about agents."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import numpy as np

from .config import TemplateConfig

_AHEAD = 0.05  # how far the boat gets across the river in a step
_SLOWER = 0.03  # if it also steers
_ASIDE = 0.06  # how far that takes it


class Move(Enum):
    """What the boat can do. The value: how far it gets across the river, and how far along it."""

    ANCHOR = (0.0, 0.0)
    AHEAD = (_AHEAD, 0.0)
    UPSTREAM = (_SLOWER, -_ASIDE)
    DOWNSTREAM = (_SLOWER, _ASIDE)


class World:
    """One crossing. The near bank is at 0 and the far bank at 1; the current flows towards larger ``along``.

    Everything random comes from ``rng``, so the same seed gives the same episode for the same moves.
    """

    def __init__(self, config: TemplateConfig, rng: np.random.Generator) -> None:
        self.config = config
        self._rng = rng
        self.across = 0.0
        self.along = float(rng.uniform(-0.5, 0.5))
        self.stage = float(rng.uniform(-0.5, 0.5))  # where the middle of the landing stage is
        self._current = float(rng.uniform(0.0, config.current))
        self.steps = 0

    def move(self, move: Move) -> None:
        """One step. An anchored boat does not drift."""
        ahead, aside = move.value
        drift = self._current + float(self._rng.normal(0.0, self.config.gusts))
        self.across = min(self.across + ahead, 1.0)
        self.along += 0.0 if move is Move.ANCHOR else aside + drift
        self.steps += 1

    @property
    def distance(self) -> float:
        """From the boat to the landing stage."""
        return float(np.hypot(1.0 - self.across, self.stage - self.along))

    @property
    def ashore(self) -> bool:
        """Whether the boat has reached the far bank."""
        return self.across >= 1.0

    @property
    def arrived(self) -> bool:
        """Whether it has done so at the landing stage."""
        return self.ashore and abs(self.stage - self.along) <= self.config.stage

    @property
    def lost(self) -> bool:
        """Whether it has missed the landing stage, or was washed away."""
        return abs(self.along) > 1.0 or (self.ashore and not self.arrived)

    @property
    def out_of_time(self) -> bool:
        """Whether the last step was taken."""
        return self.steps >= self.config.max_steps

    @property
    def time_left(self) -> float:
        """From 1 at the start to 0."""
        return 1.0 - self.steps / self.config.max_steps


class HasWorld(Protocol):
    """What runners know of the env: they read its world, and keep no reference to it."""

    @property
    def world(self) -> World:
        """The simulator."""
