"""The same env in Python: what ``template.h`` is compared with, draw by draw and step by step."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Template(gymnasium.Env[Any, Any]):
    """A walk to a goal on a square board."""

    def __init__(self, size: int = 5) -> None:
        self.observation_space = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.action_space = spaces.Discrete(4)
        self.size = size

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = [int(self.np_random.integers(0, self.size)) for _ in range(2)]
        self.goal = self.place
        while self.goal == self.place:
            self.goal = [int(self.np_random.integers(0, self.size)) for _ in range(2)]
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = [(1, 0), (0, 1), (-1, 0), (0, -1)][action]
        self.place = [min(max(at + by, 0), self.size - 1) for at, by in zip(self.place, move, strict=True)]
        is_there = self.place == self.goal
        return self._observe(), 1.0 if is_there else -0.01, is_there, False, {}

    def _observe(self) -> Any:
        return np.array([one / (self.size - 1) for one in (*self.place, *self.goal)], np.float32)
