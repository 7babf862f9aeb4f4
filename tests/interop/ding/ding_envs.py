"""Envs of DI-engine's kind for the tests: nothing in them is left to chance but their seeds."""

import time
from pathlib import Path

import gym
import numpy as np
from ding.envs import BaseEnv, BaseEnvTimestep


class Count(BaseEnv):
    """Counts its steps. The observation: the seed, the episode, the step, the last action.

    Keys of the cfg, all of them optional: ``length`` of an episode; ``abnormal_at`` and ``fails_at``, a step of the
    first one; ``info`` of every step; ``release``, a file that resets wait for, but the first.
    """

    def __init__(self, cfg=None):
        self._cfg = cfg or {}
        self._seed, self._dynamic = 0, None
        self._episode = 0

    observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gym.spaces.Discrete(3)
    reward_space = gym.spaces.Box(0.0, 3.0, (1,), np.float32)

    def seed(self, seed, dynamic_seed=True):
        self._seed, self._dynamic = seed, dynamic_seed

    def reset(self):
        if self._episode and "release" in self._cfg:
            while not Path(self._cfg["release"]).exists():
                time.sleep(0.005)
        self._episode += 1
        self._step, self._return = 0, 0.0
        return self._observe(-1)

    def _observe(self, action):
        return np.array([self._seed, self._episode, self._step, action], np.float32)

    def step(self, action):
        assert action.shape == (1,), action
        assert action.dtype == np.int64, action.dtype
        self._step += 1
        first = self._episode == 1
        if first and self._step == self._cfg.get("fails_at"):
            raise ValueError("the wheel came off")
        if first and self._step == self._cfg.get("abnormal_at"):
            return BaseEnvTimestep(None, None, True, {"abnormal": True})
        reward = float(action[0])
        self._return += reward
        done = self._step == self._cfg.get("length", 5)
        info = dict(self._cfg.get("info", {}))
        if done:
            info["eval_episode_return"] = self._return
        return BaseEnvTimestep(self._observe(action[0]), np.array([reward], np.float32), done, info)

    def reward_shaping(self, transitions):
        return [one * 10 for one in transitions]

    def close(self):
        pass

    def __repr__(self):
        return "Count"


class LateSpaces(Count):
    """Knows its spaces after the first reset only, as DI-engine's Atari env, and forgets them when it is closed."""

    observation_space = action_space = reward_space = None

    def reset(self):
        for name in ("observation_space", "action_space", "reward_space"):
            setattr(self, name, getattr(Count, name))
        return super().reset()


class Nested(Count):
    """Has a dict as observation, a dict in it, and takes a ``MultiDiscrete`` action."""

    observation_space = gym.spaces.Dict(
        {
            "count": gym.spaces.Box(-np.inf, np.inf, (4,), np.float32),
            "inner": gym.spaces.Dict({"mask": gym.spaces.Box(0, 1, (3, 2), np.int64)}),
        }
    )
    action_space = gym.spaces.MultiDiscrete([3, 2])

    def seed(self, seed):  # as envs of before dynamic seeds have it
        super().seed(seed)

    def _observe(self, action):
        return {"count": super()._observe(action), "inner": {"mask": np.full((3, 2), self._step % 2, np.int64)}}

    def step(self, action):
        assert action.shape == (2,), action
        return super().step(action[:1])


def assert_same(one, other):
    """Types, shapes and values."""
    assert type(one) is type(other), (one, other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()  # ours have the order of the space
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for mine, its in zip(one, other, strict=True):
            assert_same(mine, its)
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_array_equal(one, other)
    else:
        assert one == other
