"""``DelayReward``: pays rewards late."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import Shapes, ShapeTeller
from stepmill.wrappers.checks import checked_reward

__all__ = ["DelayReward"]


class DelayReward(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Holds the rewards back and pays their sum at every ``delay_reward_step``-th step of an episode and at its end.

    The other steps have reward 0, so the return of an episode stays the same. The reward must be one number;
    observations may be anything, also Dicts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], delay_reward_step: int) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self, delay_reward_step=delay_reward_step)
        self.delay_reward_step = whole_number("DelayReward: delay_reward_step", delay_reward_step, 1)
        self._owed = 0.0
        self._steps = 0  # since the last payment

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, with nothing owed."""
        self._owed, self._steps = 0.0, 0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step, with the reward that is due."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._owed += checked_reward("DelayReward", reward)
        self._steps += 1
        paid = 0.0
        if terminated or truncated or self._steps == self.delay_reward_step:
            paid, self._owed, self._steps = self._owed, 0.0, 0
        return observation, paid, terminated, truncated, info

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, delay_reward_step: int | None = None) -> Shapes:
        """All shapes stay the same."""
        if delay_reward_step is not None:
            whole_number("DelayReward: delay_reward_step", delay_reward_step, 1)
        return obs_shape, act_shape, rew_shape
