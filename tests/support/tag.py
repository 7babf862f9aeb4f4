"""Tag on a ring in Python: the game of ``cpp/envs/debug/players.h``, draw by draw. The oracle of the native one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pettingzoo
from gymnasium import spaces

__all__ = ["TagEnv"]


class TagEnv(pettingzoo.ParallelEnv):
    """``names``: how the agents are called; by default all are players, with equal spaces.

    With ``"hunter"`` in them, hunters see one number less than the others and have an action more, which does nothing.
    """

    metadata = {"name": "tag", "render_modes": []}  # noqa: RUF012  (read only)
    render_mode = None

    def __init__(
        self, most: int = 4, tiles: int = 12, stay: int = 30, join: float = 0.2, names: list[str] | None = None
    ) -> None:
        self.possible_agents = names or [f"player_{i}" for i in range(most)]
        self.agents: list[str] = []
        self._tiles, self._stay, self._join = tiles, stay, join
        self._random = np.random.default_rng()
        self.steps_taken = 0  # of all episodes

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        most, far = len(self.possible_agents), self._tiles / 2
        low, high = [0.0, -far, 0.0, 0.0], [self._tiles - 1.0, far, 1.0, most]
        size = 3 if agent.startswith("hunter") else 4
        return spaces.Box(np.array(low[:size], np.float32), np.array(high[:size], np.float32))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(4 if agent.startswith("hunter") else 3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._random = np.random.Generator(np.random.PCG64(seed))
        self._tile: dict[str, int] = {}
        self._stayed: dict[str, int] = {}
        self.agents = []
        for agent in self.possible_agents[: (len(self.possible_agents) + 1) // 2]:
            self._enter(agent)
        return self._seen(self.agents), {}

    def _enter(self, agent: str) -> None:
        self._tile[agent], self._stayed[agent] = int(self._random.integers(0, self._tiles)), 0
        self.agents = [one for one in self.possible_agents if one in self.agents or one == agent]

    def step(self, actions: dict[str, Any]) -> Any:
        acting = list(self.agents)
        if list(actions) != acting:
            raise ValueError(f"expected actions of {acting}, got {list(actions)}")
        self.steps_taken += 1
        rewards = dict.fromkeys(acting, 0.1)
        for agent in acting:
            self._tile[agent] = (self._tile[agent] + {1: -1, 2: 1}.get(int(actions[agent]), 0)) % self._tiles
            self._stayed[agent] += 1
        tagger = acting[0]
        tagged = [one for one in acting[1:] if self._tile[one] == self._tile[tagger]]
        for one in tagged:
            rewards[one] = -1.0
            rewards[tagger] += 1.0
        tired = [one for one in acting if one not in tagged and self._stayed[one] >= self._stay]
        self.agents = [one for one in acting if one not in tagged and one not in tired]
        absent = [one for one in self.possible_agents if one not in acting]
        if self._random.random() < self._join and absent:
            self._enter(absent[0])
        seen = self._seen([*acting, *(one for one in self.agents if one not in acting)])
        terminated = {one: one in tagged for one in acting}
        return seen, rewards, terminated, {one: one in tired for one in acting}, {}

    def _seen(self, shown: list[str]) -> dict[str, np.ndarray]:
        tagger = self.agents[0] if self.agents else None
        out = {}
        for one in shown:
            right = 0 if tagger is None else (self._tile[tagger] - self._tile[one]) % self._tiles
            way = right - self._tiles if 2 * right > self._tiles else right
            numbers = [self._tile[one], way, one == tagger, len(self.agents)]
            out[one] = np.array(numbers[: self.observation_space(one).shape[0]], np.float32)
        return out

    def close(self) -> None:
        pass
