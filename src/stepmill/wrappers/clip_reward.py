"""``ClipRewardEnv``: rewards of -1, 0 and 1."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from stepmill.wrappers.base import ShapeTeller
from stepmill.wrappers.checks import checked_reward

__all__ = ["ClipRewardEnv"]


class ClipRewardEnv(ShapeTeller, gymnasium.RewardWrapper[Any, Any], RecordConstructorArgs):
    """Replaces the reward with its sign: -1.0, 0.0 or 1.0. Takes any observation, also a Dict, and any action."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.RewardWrapper.__init__(self, env)

    def reward(self, reward: SupportsFloat) -> float:
        """The sign of the reward."""
        return float(np.sign(checked_reward("ClipRewardEnv", reward)))
