"""Envs of each kind that adapters take, which do as they are told and keep what they are given."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pettingzoo
from gymnasium import spaces

PAIR = spaces.Box(-1, 1, (2,), np.float32)


class Told(gymnasium.Env[Any, Any]):
    """Returns what it is told to, and keeps what it is given."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        observation_space: Any = PAIR,
        action_space: Any = None,
        at_reset: Any = None,
        at_step: Any = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.render_mode = render_mode
        self._at_reset, self._at_step = at_reset, at_step
        self.taken: Any = None
        self.closed = self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return (np.zeros(2, np.float32), {}) if self._at_reset is None else self._at_reset

    def step(self, action: Any) -> Any:
        self.taken = action
        self.steps += 1
        return (np.zeros(2, np.float32), 1.0, False, False, {}) if self._at_step is None else self._at_step

    def render(self) -> Any:
        return np.full((16, 16, 3), self.steps, np.uint8)

    def close(self) -> None:
        self.closed += 1


ZEROS = np.zeros(2, np.float32)


class Two(pettingzoo.ParallelEnv):
    """Two agents for ``length`` steps, each with an action mask in its info."""

    metadata = {"name": "two"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, shown: Any = None, action_space: Any = None, length: int = 2) -> None:
        self._shown = np.zeros(3, np.float32) if shown is None else shown
        self._action_space = action_space or spaces.Discrete(2)
        self._length = length
        self.taken: Any = None
        self.closed = 0

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-5, 5, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return self._action_space

    def _infos(self) -> Any:
        return {agent: {"action_mask": np.array([1, int(agent == "a")])} for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.count = list(self.possible_agents), 0
        return self._observations(), self._infos()

    def _observations(self) -> Any:
        return dict.fromkeys(self.possible_agents, self._shown)

    def step(self, actions: Any) -> Any:
        self.taken = actions
        self.count += 1
        if self.count == self._length:
            self.agents = []
        ended = dict.fromkeys(self.possible_agents, not self.agents)
        unpaid = dict.fromkeys(self.possible_agents, 0.0)
        return self._observations(), unpaid, ended, dict.fromkeys(ended, False), self._infos()

    def close(self) -> None:
        self.closed += 1


class Duck:
    """Has the methods of an env, and is none."""

    observation_space = PAIR
    action_space = spaces.Discrete(2)

    def reset(self) -> None:
        """Nothing."""

    def step(self, action: Any) -> None:
        """Nothing."""
