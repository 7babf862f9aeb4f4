"""The way CleanRL's EnvPool scripts use a pool: a wrapper that counts episodes.

As published they are for EnvPool 0.x and old Gym (``legacy``); ported to EnvPool 1.x, for Gymnasium.
"""

from __future__ import annotations

import importlib.machinery
import sys
import types
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces


class CountsEpisodes:
    """What CleanRL's ``RecordEpisodeStatistics`` does, for both forms of results."""

    def start(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.returns, self.lengths = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.int32)

    def count(self, infos: dict[str, Any]) -> None:
        self.returns += infos["reward"]
        self.lengths += 1
        infos["r"], infos["l"] = self.returns.copy(), self.lengths.copy()
        self.returns *= 1 - infos["terminated"]
        self.lengths *= 1 - infos["terminated"]


class Ported(CountsEpisodes, gymnasium.Wrapper):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.start(getattr(env, "num_envs", 1))

    def step(self, action: Any) -> Any:
        result = super().step(action)
        self.count(result[-1])
        return result


class OldGymWrapper:
    """Old Gym's: attributes that it does not have are the env's."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **kwargs: Any) -> Any:
        return self.env.reset(**kwargs)

    def step(self, action: Any) -> Any:
        return self.env.step(action)


class Published(CountsEpisodes, OldGymWrapper):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.start(getattr(env, "num_envs", 1))

    def step(self, action: Any) -> Any:
        observations, rewards, dones, infos = super().step(action)
        self.count(infos)
        return observations, rewards, dones, infos


def arguments() -> dict[str, Any]:
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    short = {"max_episode_steps": 30, "noop_max": 1, "backend": "inline"}
    return {"num_envs": 2, "episodic_life": True, "reward_clip": True, "seed": 1, **short}


def prepared(envs: Any) -> Any:
    """What the scripts set before they wrap the pool."""
    envs.num_envs = 2
    envs.single_action_space = envs.action_space
    envs.single_observation_space = envs.observation_space
    return envs


def test_the_ported_wrapper(envpool: Any) -> None:
    envs = Ported(prepared(envpool.make("Pong-v5", env_type="gym", **arguments())))
    assert isinstance(envs.action_space, gymnasium.spaces.Discrete)
    obs, _ = envs.reset()
    assert obs.shape == (2, 4, 84, 84)
    lengths = []
    for _ in range(35):
        obs, rewards, terminated, truncated, infos = envs.step(np.zeros(2, int))
        assert rewards.dtype == infos["r"].dtype == np.float32
        assert infos["lives"].dtype == infos["terminated"].dtype == np.int32
        lengths += infos["l"][terminated | truncated].tolist()
    assert lengths == [30, 30]
    assert envs.get_wrapper_attr("single_action_space").n == 6


def test_the_published_wrapper(legacy: Any) -> None:
    envs = Published(prepared(legacy.make("Pong-v5", env_type="gym", **arguments())))
    obs = envs.reset()
    assert obs.shape == (2, 4, 84, 84)
    limits = 0
    for _ in range(35):
        obs, rewards, dones, infos = envs.step(np.zeros(2, int))
        assert obs.shape == (2, 4, 84, 84)
        assert rewards.shape == dones.shape == (2,)
        limits += int(infos["TimeLimit.truncated"].sum())
        assert (infos["TimeLimit.truncated"] == dones).all()
    assert limits == 2
    assert envs.single_action_space.n == 6


def test_old_results_have_no_infos_unless_asked_for(legacy: Any) -> None:
    env = legacy.make_gym("CartPole-v1", num_envs=6, batch_size=2)
    assert env.reset().shape == (2, 4)
    assert len(env.recv()) == 4
    both = legacy.make_gym("CartPole-v1", num_envs=6, batch_size=2, gym_reset_return_info=True)
    obs, info = both.reset()
    assert len(obs) == len(info["env_id"]) == 2
    assert env.config["gym_reset_return_info"] is False
    assert legacy.make_spec("CartPole-v1").config.gym_reset_return_info is False
    assert both.config["gym_reset_return_info"] is True
    assert legacy.make_spec("CartPole-v1", gym_reset_return_info=True).config.gym_reset_return_info is True
    assert len(legacy.make("CartPole-v1", "gymnasium").reset()) == 2
    assert legacy.make("CartPole-v1", "dm").reset().first().all()


def test_old_spaces_are_those_of_old_gym_if_it_is_installed(legacy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Discrete:
        def __init__(self, n: int) -> None:
            self.n = n

    class Box:
        def __init__(self, low: Any, high: Any, shape: Any, dtype: Any) -> None:
            self.low, self.high, self.shape, self.dtype = low, high, shape, dtype

    gym = types.ModuleType("gym")
    gym.__spec__ = importlib.machinery.ModuleSpec("gym", None)
    gym.spaces = types.SimpleNamespace(Discrete=Discrete, Box=Box)
    monkeypatch.setitem(sys.modules, "gym", gym)
    env = legacy.make_gym("CartPole-v1", num_envs=2)
    assert isinstance(env.action_space, Discrete)
    assert isinstance(env.single_observation_space, Box)
    assert env.action_space.n == 2
    assert env.observation_space.shape == (4,)
    monkeypatch.undo()
    assert isinstance(legacy.make_gym("CartPole-v1").action_space, spaces.Discrete)
