"""``RewardNormEnv``: rewards of a steady size, scaled by the returns so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs

from stepmill.errors import EnvError
from stepmill.values.arguments import real_number, true_or_false
from stepmill.wrappers.base import Shapes, ShapeTeller
from stepmill.wrappers.checks import checked_reward
from stepmill.wrappers.running_mean_std import RunningMeanStd

__all__ = ["RewardNormEnv"]


class RewardNormEnv(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """``reward / sqrt(variance of the discounted returns + epsilon)``, clipped to ``[-clip, clip]``.

    The discounted return of a step is ``return = gamma * return + reward``, starting from 0 at every reset, however the
    last episode ended. The variance is that of these numbers, one per step, including the current one, over all
    episodes: a reset keeps it. The mean is not subtracted: that would change the task. Fewer than two returns have no
    variance, so the first reward is only clipped.

    (Gymnasium's ``NormalizeReward`` carries the return over truncations and into the episode after a termination, and
    starts its variance with 1e-4 of a made-up observation.)

    The reward must be one number; the observation may be anything, also Dicts.

    Args:
        env: The env to wrap.
        gamma: The discount, from 0 to 1.
        epsilon: Added to the variance, so that constant rewards cause no division by 0.
        clip: The largest absolute value of the result; None for no bound.
        training: False: the variance is used but not updated, as for evaluation. Can be set at any time.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        clip: float | None = 10.0,
        training: bool = True,
    ) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self, gamma=gamma, epsilon=epsilon, clip=clip, training=training)
        self.gamma = real_number("RewardNormEnv: gamma", gamma, 0, 1)
        self.epsilon = real_number("RewardNormEnv: epsilon", epsilon, 0, above=True)
        self.clip = None if clip is None else real_number("RewardNormEnv: clip", clip, 0, above=True)
        self.training = true_or_false("RewardNormEnv: training", training)
        self._statistics = RunningMeanStd()
        self._return = 0.0

    @property
    def statistics(self) -> RunningMeanStd:
        """The wrapper's own statistics of the discounted returns. Not a copy."""
        return self._statistics

    def state_dict(self) -> dict[str, Any]:
        """The statistics, to be saved, without the return of the current episode."""
        return self._statistics.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from saved statistics; an invalid state is an error and changes nothing."""
        self._statistics.load_state_dict(state)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, with the return at 0."""
        self._return = 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step, with its reward normalised."""
        observation, raw, terminated, truncated, info = super().step(action)
        reward = checked_reward("RewardNormEnv", raw)
        if not math.isfinite(reward):
            raise EnvError(f"RewardNormEnv: expected a finite reward, got {reward}")
        discounted = self.gamma * self._return + reward
        if self.training:
            self._statistics.update(discounted)
        self._return = discounted
        return observation, self._normalise(reward), terminated, truncated, info

    def _normalise(self, reward: float) -> float:
        if self._statistics.count > 1:
            reward /= float(np.sqrt(self._statistics.var + self.epsilon))
        return reward if self.clip is None else min(max(reward, -self.clip), self.clip)

    @staticmethod
    def new_shape(
        obs_shape: Any,
        act_shape: Any,
        rew_shape: Any,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        clip: float | None = 10.0,
        training: bool = True,
    ) -> Shapes:
        """All shapes stay the same."""
        return obs_shape, act_shape, rew_shape
