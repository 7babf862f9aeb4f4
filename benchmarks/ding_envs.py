"""Envs of DI-engine's kind, without wrappers: the benchmarks of its managers and ours use them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from ding.envs import BaseEnv, BaseEnvTimestep

from benchmarks.python_envs import FRAME, work

EPISODE = 200  # steps, of the env with frames


class CartPole(BaseEnv):
    """Gymnasium's CartPole-v1, without its wrappers."""

    def __init__(self, cfg: Any = None) -> None:
        self._env: Any = gymnasium.make("CartPole-v1").unwrapped
        self.observation_space = self._env.observation_space
        self.action_space = self._env.action_space
        self.reward_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        self._seed: int | None = None

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed = seed

    def reset(self) -> np.ndarray:
        obs, _ = self._env.reset(seed=self._seed)
        self._seed = None
        self._steps = 0
        return obs

    def step(self, action: np.ndarray) -> Any:
        obs, reward, terminated, _, info = self._env.step(int(action[0]))
        self._steps += 1
        done = terminated or self._steps == 500
        if done:
            info["eval_episode_return"] = float(self._steps)
        return BaseEnvTimestep(obs, np.array([reward], np.float32), done, info)

    def close(self) -> None:
        self._env.close()

    def __repr__(self) -> str:
        return "CartPole"


class Frames(BaseEnv):
    """Works for 100 µs, or as long as ``iterations`` take, and returns a new picture."""

    observation_space = gymnasium.spaces.Box(0, 255, FRAME, np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    reward_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        pass

    def reset(self) -> np.ndarray:
        self._steps = 0
        return self._observe()

    def step(self, action: np.ndarray) -> Any:
        work(self._iterations)
        self._steps += 1
        done = self._steps == EPISODE
        info = {"eval_episode_return": float(EPISODE)} if done else {}
        return BaseEnvTimestep(self._observe(), np.ones(1, np.float32), done, info)

    def _observe(self) -> np.ndarray:
        return np.full(FRAME, self._steps & 255, np.uint8)

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return "Frames"
