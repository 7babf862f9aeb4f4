"""Wrappers that change or sum rewards."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np

from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import RecordedWrapper, Shapes, checked_reward


class ClipRewardEnv(RecordedWrapper, gymnasium.RewardWrapper[Any, Any]):
    """Replaces the reward with its sign: -1.0, 0.0 or 1.0. Takes any observation, also a Dict, and any action."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)

    def reward(self, reward: SupportsFloat) -> float:
        """The sign of the reward."""
        return float(np.sign(checked_reward("ClipRewardEnv", reward)))


class DelayReward(RecordedWrapper):
    """Holds the rewards back and pays their sum at every ``delay_reward_step``-th step of an episode and at its end.

    The other steps have reward 0, so the return of an episode stays the same. The reward must be one number;
    observations may be anything, also Dicts.
    """

    _state_names = ("_owed", "_steps")

    def __init__(self, env: gymnasium.Env[Any, Any], delay_reward_step: int) -> None:
        super().__init__(env, delay_reward_step=delay_reward_step)
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


_NAMES = ("eval_episode_return", "final_eval_reward")


class EvalEpisodeReturn(RecordedWrapper):
    """Adds the sum of an episode's rewards to the info of its last step, as ``eval_episode_return``, a Python float.

    Older callers find the same float as ``final_eval_reward``. Put it inside wrappers that change rewards: it sums what
    it gets. If the info already has one of the two, that value stays, under both names: an env that measures its
    episodes differently (a win rate), or an inner wrapper of this kind, takes precedence.

    The reward must be one number; the observation may be anything, also Dicts.
    """

    _state_names = ("_return",)

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._return = 0.0

    @property
    def episode_return(self) -> float:
        """The sum so far, of the current episode or the one that has just ended."""
        return self._return

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, with its return at 0."""
        self._return = 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the info of the last one has the return."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._return += checked_reward("EvalEpisodeReturn", reward)
        if terminated or truncated:
            told = next((info[name] for name in _NAMES if name in info), self._return)
            info = {**info, **dict.fromkeys(_NAMES, checked_reward("EvalEpisodeReturn", told))}
        return observation, reward, terminated, truncated, info
