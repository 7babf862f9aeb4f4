"""Envs with the interface of DI-engine's ``BaseEnv``, and what its own envs do with it: DI-engine is not needed."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
from gymnasium import spaces

DingTimestep = collections.namedtuple("DingTimestep", ["obs", "reward", "done", "info"])
LongTimestep = collections.namedtuple("LongTimestep", ["obs", "reward", "done", "info", "episode_steps", "note"])


class DingLike:
    """Not one of our ``BaseEnv``s: what makes it DI-engine's is ``create_collector_env_cfg``.

    cfg: ``length`` of an episode.
    """

    observation_space: Any = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space: Any = spaces.Discrete(5)
    reward_space: Any = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, cfg: Any = None) -> None:
        self._cfg = cfg or {}
        self.elapsed = 0
        self.received: Any = None

    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> list[Any]:
        return [cfg]

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self.generator = np.random.default_rng(seed)

    def reset(self) -> Any:
        self.elapsed = 0
        return self.show()

    def step(self, action: Any) -> Any:
        self.received = action
        self.elapsed += 1
        done = self.elapsed == self._cfg.get("length", 3)
        return DingTimestep(self.show(), self.reward(), done, self.tell(done))

    def show(self) -> Any:
        return np.array([self.elapsed, 0], np.float32)

    def reward(self) -> Any:
        return np.array([float(np.sum(self.received))], np.float32)

    def tell(self, done: bool) -> Any:
        return {"type": type(self.received).__name__}

    def random_action(self) -> Any:
        return None

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return type(self).__name__


class Team(DingLike):
    """Three agents: a Dict by agent as action space, one array with a row for each as action."""

    names = ("left", "right", "keeper")
    observation_space = spaces.Dict(
        {
            "agent_state": spaces.Box(-np.inf, np.inf, (3, 2), np.float32),
            "global_state": spaces.Box(-np.inf, np.inf, (4,), np.float32),
            "action_mask": spaces.Box(0, 1, (3, 5), np.float32),
        }
    )
    action_space = spaces.Dict({name: spaces.Discrete(5) for name in names})
    reward_space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (1,), np.float32) for name in names})

    def show(self) -> Any:
        if isinstance(self.received, dict):
            rows = [self.received[name] for name in self.names]
        else:
            rows = [0, 0, 0] if self.received is None else np.ravel(self.received).tolist()
        return {
            "agent_state": np.array([[row, self.elapsed] for row in rows], np.float32),
            "global_state": np.full(4, self.elapsed, np.float32),
            "action_mask": np.ones((3, 5), np.float32),
        }

    def reward(self) -> Any:
        return np.ones(1, np.float32)

    def tell(self, done: bool) -> Any:
        told = {"type": type(self.received).__name__, **{name: {} for name in self.names}}
        return {**told, "eval_episode_return": 3.0} if done else told

    def random_action(self) -> Any:
        return self.generator.integers(5, size=3)


class Duel(DingLike):
    """Two players, no spaces, an info for each; a list of two numbers as action. Abnormal where the first one is 9."""

    observation_space = action_space = reward_space = None

    def show(self) -> Any:
        return np.array([[self.elapsed, 1], [self.elapsed, 2]], np.float32)

    def reward(self) -> Any:
        return np.array([[1.0], [-1.0]], np.float32)

    def tell(self, done: bool) -> Any:
        first = {"received": self.received, "eval_episode_return": 5.0}
        if self.received[0] == 9:
            first["abnormal"] = True
        return first, {"eval_episode_return": -5.0}

    def random_action(self) -> Any:
        return self.generator.integers(2, size=2).tolist()


class Shifty(DingLike):
    """Shows what its space does not describe: after odd steps a list of the steps so far, which it goes on to fill."""

    def reset(self) -> Any:
        self.seen: list[Any] = ["steps"]
        return super().reset()

    def show(self) -> Any:
        self.seen.append(self.elapsed)
        return self.seen if self.elapsed % 2 else super().show()


class Long(DingLike):
    """Its timesteps have two fields more."""

    def step(self, action: Any) -> Any:
        return LongTimestep(*super().step(action), self.elapsed, f"step {self.elapsed}")


class Late(DingLike):
    """Knows its spaces after a reset only, and is closed for good, as DI-engine's ``DingEnvWrapper``."""

    observation_space = action_space = reward_space = None
    closed = False

    def reset(self) -> Any:
        if self.closed:
            raise RuntimeError("closed for good")
        for name in ("observation_space", "action_space", "reward_space"):
            setattr(self, name, getattr(DingLike, name))
        return super().reset()

    def close(self) -> None:
        self.closed = True


class OldWrapper:
    """As ``gym.Wrapper``: it has what the env inside has, but for private names. ``step`` gives a plain tuple."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"private: {name}")
        return getattr(self.env, name)

    def step(self, action: Any) -> Any:
        obs, reward, done, info = self.env.step(action)
        return {"obs": obs, "reward": reward}, reward, done, info

    def reset(self) -> Any:
        return {"obs": self.env.reset(), "reward": np.array([0])}
