"""Envs whose observations tell where they are: whether a transition is whole can be seen in it."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

CRASH = 4  # the action


def length_of(env_id: int, episode: int) -> int:
    """How many steps an episode has."""
    return 2 + (3 * env_id + 2 * episode) % 5


class Diary(gymnasium.Env):
    """Tells its id, its episode, its step and the last action. Every second episode is truncated."""

    observation_space = spaces.Box(-1.0, 1000.0, (4,), np.float32)
    action_space = spaces.Discrete(4)
    bad_resets: ClassVar[list[int]] = []  # the numbers of resets that fail, in whichever env

    def __init__(self, env_id: int = 0) -> None:
        self.env_id, self.episode, self.at = env_id, -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if self.bad_resets and self.bad_resets.pop(0):
            raise ValueError("no reset today")
        self.episode, self.at = self.episode + 1, 0
        return self._told(-1), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        over, even = self.at == length_of(self.env_id, self.episode), self.episode % 2 == 0
        return self._told(action), 10.0 * self.env_id + self.at, over and even, over and not even, {}

    def _told(self, action: int) -> np.ndarray:
        return np.array([self.env_id, self.episode, self.at, action], np.float32)


class FragileDiary(Diary):
    """Fails if it is asked to."""

    action_space = spaces.Discrete(5)

    def step(self, action: Any) -> Any:
        if action == CRASH:
            raise ValueError("it broke")
        return super().step(action)


class EverySpace(gymnasium.Env):
    """A Dict observation with parts of each kind, and an action with parts."""

    observation_space = spaces.Dict(
        {
            "box": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
            "open": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "half": spaces.Box(0.0, np.inf, (2,), np.float32),
            "scalar": spaces.Box(-5.0, 5.0, (), np.float32),
            "image": spaces.Box(0, 255, (1, 4, 4), np.uint8),
            "wide": spaces.Box(0, 65535, (2,), np.uint16),
            "yes": spaces.Box(0, 1, (3,), np.bool_),
            "number": spaces.Discrete(7),
            "later": spaces.Discrete(7, start=-3),
            "numbers": spaces.MultiDiscrete([3, 5]),
            "table": spaces.MultiDiscrete([[3, 5], [2, 2]]),
            "bits": spaces.MultiBinary(4),
            "grid": spaces.MultiBinary((2, 3)),
            "inner": spaces.Dict({"deep": spaces.Box(0.0, 1.0, (1,), np.float32)}),
            "pair": spaces.Tuple([spaces.Discrete(2), spaces.Box(0.0, 1.0, (2,), np.float32)]),
        }
    )
    action_space = spaces.Dict(
        {
            "turn": spaces.Discrete(3),
            "gears": spaces.MultiDiscrete([2, 4]),
            "push": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "lights": spaces.MultiBinary(3),
            "both": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (), np.float32)]),
        }
    )

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.at = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action):
            raise ValueError(f"not in the action space: {action}")
        self.actions.append(action)
        self.at += 1
        return self.observation_space.sample(), 1.0, self.at == 5, False, {}


class Chase(ParallelEnv):
    """A cat and two mice, of different spaces. The second mouse leaves after two steps, the others after five."""

    metadata: ClassVar[dict[str, Any]] = {"name": "chase"}
    possible_agents: ClassVar[list[str]] = ["mouse_0", "cat_0", "mouse_1"]

    def observation_space(self, agent: str) -> Any:
        at = spaces.Box(-9.0, 9.0, (2,), np.float32)
        return at if agent.startswith("mouse") else spaces.Dict({"at": at, "mood": spaces.Discrete(3)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3) if agent.startswith("mouse") else spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents, self.at, self.did = list(self.possible_agents), 0, dict.fromkeys(self.possible_agents, 0.0)
        return self._seen(self.agents), {}

    def step(self, actions: Any) -> Any:
        acting, self.at = self.agents, self.at + 1
        self.did |= {one: float(np.asarray(action).ravel()[0]) for one, action in actions.items()}
        left = {one: self.at == 5 or (one == "mouse_1" and self.at == 2) for one in acting}
        self.agents = [one for one in acting if not left[one]]
        return self._seen(acting), {one: float(self.at) for one in acting}, left, dict.fromkeys(acting, False), {}

    def _seen(self, agents: list[str]) -> Any:
        told = {one: np.array([self.at, self.did[one]], np.float32) for one in agents}
        return {one: at if one.startswith("mouse") else {"at": at, "mood": self.at % 3} for one, at in told.items()}
