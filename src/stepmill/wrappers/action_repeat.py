"""``ActionRepeat``: takes each action several times."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import Shapes, ShapeTeller
from stepmill.wrappers.checks import checked_reward

__all__ = ["ActionRepeat"]


class ActionRepeat(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Takes every action ``action_repeat`` times, or until the episode ends, and sums the rewards.

    Observation, flags and info are those of the last repetition; ``info["abnormal"]`` is true if it was in any of them.
    The reward must be one number; observations may be anything, also Dicts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], action_repeat: int) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self, action_repeat=action_repeat)
        self.action_repeat = whole_number("ActionRepeat: action_repeat", action_repeat, 1)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """All repetitions, as one step."""
        total, abnormal = 0.0, False
        for _ in range(self.action_repeat):
            observation, reward, terminated, truncated, info = super().step(action)
            total += checked_reward("ActionRepeat", reward)
            abnormal = abnormal or bool(info.get("abnormal", False))
            if terminated or truncated:
                break
        if abnormal:
            info = {**info, "abnormal": True}
        return observation, total, terminated, truncated, info

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, action_repeat: int | None = None) -> Shapes:
        """All shapes stay the same."""
        if action_repeat is not None:
            whole_number("ActionRepeat: action_repeat", action_repeat, 1)
        return obs_shape, act_shape, rew_shape
