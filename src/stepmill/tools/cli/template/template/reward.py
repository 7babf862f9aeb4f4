"""The reward: for coming nearer, and for arriving."""

from __future__ import annotations

import numpy as np
from stepmill.envs import EnvElement, EnvElementRunner

from .world import HasWorld


class TemplateReward(EnvElement):
    """The distance gained in this step, 1 for arriving, -1 for missing the landing stage, -0.01 for the time."""

    _name = "TemplateReward"

    def _init(self) -> None:
        self._shape = (1,)
        self._value = {"min": -3.0, "max": 3.0, "dtype": np.float32}
        self._to_agent_processor = self.pay
        self._from_agent_processor = None

    def _details(self) -> str:
        return "distance gained, 1 for arriving, -1 for missing, -0.01 per step"

    def pay(self, gained: float, arrived: bool, lost: bool) -> np.ndarray:
        """In the form of an env's reward: float32, one number."""
        reward = gained + arrived - lost - 0.01
        return np.clip(np.array([reward], np.float32), self._value["min"], self._value["max"])


class TemplateRewardRunner(EnvElementRunner):
    """Remembers how far it was."""

    _core: TemplateReward

    def _init(self) -> None:
        self._core = TemplateReward()
        self._distance = 0.0

    def get(self, engine: HasWorld) -> np.ndarray:
        """For the step that was just taken."""
        world = engine.world
        gained, self._distance = self._distance - world.distance, world.distance
        return self._core.pay(gained, world.arrived, world.lost)

    def reset(self, engine: HasWorld) -> None:
        """A new episode begins."""
        self._distance = engine.world.distance
