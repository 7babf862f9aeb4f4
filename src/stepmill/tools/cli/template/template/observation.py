"""The observation: five numbers."""

from __future__ import annotations

import numpy as np
from stepmill.envs import EnvElement, EnvElementRunner

from .world import HasWorld, World


class TemplateObservation(EnvElement):
    """What the agent sees.

    =  ===================================================
    0  how far across the river the boat is, from 0 to 1
    1  how far along it
    2  how much further along it the landing stage is
    3  how far the last step took the boat along
    4  the time that is left, from 1 to 0
    =  ===================================================
    """

    _name = "TemplateObservation"

    def _init(self) -> None:
        self._shape = (5,)
        self._value = {
            "min": np.array([0.0, -2.0, -2.0, -1.0, 0.0], np.float32),
            "max": np.array([1.0, 2.0, 2.0, 1.0, 1.0], np.float32),
            "dtype": np.float32,
        }
        self._to_agent_processor = self.encode
        self._from_agent_processor = None

    def _details(self) -> str:
        return "across, along, along to the stage, last step along, time left"

    def encode(self, world: World, moved: float) -> np.ndarray:
        """The numbers, within their bounds."""
        numbers = [world.across, world.along, world.stage - world.along, moved, world.time_left]
        return np.clip(np.array(numbers, np.float32), self._value["min"], self._value["max"])


class TemplateObservationRunner(EnvElementRunner):
    """An element at work in one env: it keeps what changes during an episode, here where the boat was."""

    _core: TemplateObservation

    def _init(self) -> None:
        self._core = TemplateObservation()
        self._last = 0.0

    def get(self, engine: HasWorld) -> np.ndarray:
        """The current observation, a new array each time."""
        along = engine.world.along
        moved, self._last = along - self._last, along
        return self._core.encode(engine.world, moved)

    def reset(self, engine: HasWorld) -> None:
        """A new episode begins."""
        self._last = engine.world.along
