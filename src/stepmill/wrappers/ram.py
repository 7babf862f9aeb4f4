"""``RamWrapper``: the memory of a console as an image."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.wrappers.base import Shapes, ShapeTeller, refuse
from stepmill.wrappers.checks import checked_observation

__all__ = ["RamWrapper"]


class RamWrapper(ShapeTeller, gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Shows the 128 bytes of a console's memory as an image of one column: ``(128,)`` becomes ``(128, 1, 1)``, float32.

    Takes Box observations with one axis, of any length. The values stay unchanged; ``ScaledFloatFrame`` scales them.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            refuse("RamWrapper", "a Box observation space of shape (128,), or another with one axis", space)
        self.observation_space = spaces.Box(_as_column(space.low), _as_column(space.high), dtype=np.float32)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any) -> Shapes:
        """``(n,)`` becomes ``(n, 1, 1)``."""
        if not isinstance(obs_shape, tuple | list) or len(obs_shape) != 1:
            refuse("RamWrapper", "the shape (128,), or another with one axis", obs_shape)
        return (*obs_shape, 1, 1), act_shape, rew_shape

    def observation(self, observation: Any) -> Any:
        """A copy of the memory as a column."""
        return _as_column(checked_observation("RamWrapper", self.env.observation_space, observation))


def _as_column(ram: Any) -> Any:
    return np.array(ram, np.float32).reshape(-1, 1, 1)
