"""An env whose state nobody can read from it: only a copy of its process has it."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Walker(gymnasium.Env[np.ndarray, Any]):
    """Remembers in ways that nothing but a fork can save: a suspended generator, and all global generators."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space = spaces.Discrete(3)
    closed_in: str | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            random.seed(seed)
            np.random.seed(seed)
        self._walk = self._walking(int(self.np_random.integers(3, 9)))
        return next(self._walk)[0], {"from": options}

    def _walking(self, length: int) -> Iterator[Any]:
        place, action = 0.0, None
        for step in range(length + 1):
            seen = np.array([place, random.random(), np.random.random(), self.np_random.random()])
            action = yield seen, place, step == length, False, {"steps": step}
            place += random.gauss(float(action), 1.0)

    def step(self, action: Any) -> Any:
        return self._walk.send(action)  # type: ignore[attr-defined]

    def close(self) -> None:
        if self.closed_in is not None:
            (Path(self.closed_in) / str(os.getpid())).touch()
