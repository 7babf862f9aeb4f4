"""Envs inside of all wrappers that remember something."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill import wrappers
from stepmill.envs import DingEnvWrapper
from support.envs.scripted import ChanceEnv

BOX = spaces.Box(-1, 1, (2, 3), np.float32)


def with_our_wrappers() -> Any:
    """All of ours that remember something."""
    env: Any = ChanceEnv(BOX, in_place=True)
    for wrapper, arguments in (
        (wrappers.EvalEpisodeReturn, {}),
        (wrappers.NoopResetEnv, {"noop_max": 3}),
        (wrappers.EpisodicLifeEnv, {}),
        (wrappers.ObsNormEnv, {}),
        (wrappers.RewardNormEnv, {}),
        (wrappers.FrameStack, {"n_frames": 3}),
        (wrappers.DelayReward, {"delay_reward_step": 3}),
        (wrappers.TimeLimit, {"max_episode_steps": 17}),
    ):
        env = wrapper(env, **arguments)
    return env


def with_wrappers_of_gymnasium() -> Any:
    env: Any = gymnasium.wrappers.PassiveEnvChecker(ChanceEnv(BOX))
    env = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.OrderEnforcing(env), 9)
    env = gymnasium.wrappers.StickyAction(env, 0.3)
    env = gymnasium.wrappers.NormalizeReward(gymnasium.wrappers.NormalizeObservation(env))
    env = gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.DelayObservation(env, 2), 2)
    return gymnasium.wrappers.TimeAwareObservation(gymnasium.wrappers.FlattenObservation(env))


def in_ding_wrapper() -> Any:
    return DingEnvWrapper(ChanceEnv(BOX), {"env_wrapper": [("FrameStack", {"n_frames": 2})], "max_episode_steps": 8})
