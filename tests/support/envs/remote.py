"""Envs for pools on a cluster: actors import this module."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Teller(gymnasium.Env[np.ndarray, int]):
    """Has infos of every kind, and episodes of four steps; fails if it is told to."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3)
    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self, env_id: int = 0) -> None:
        self.env_id, self.level = env_id, 1

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self.np_random.random(2), {"options": str(options), "id": self.env_id}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.at += 1
        if action == 2:
            raise ValueError(f"it broke at {self.at}")
        info = {"at": self.at, "words": ["a"] * self.at} if self.at % 2 else {}
        return self.np_random.random(2), float(action), self.at == 4, False, info

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def render(self) -> np.ndarray:
        return np.full((2, 2, 3), self.env_id, np.uint8)


class Unbuildable(Teller):
    """Its constructor fails, in one of the envs."""

    def __init__(self, env_id: int = 0) -> None:
        if env_id == 2:
            raise RuntimeError("no such map")
        super().__init__(env_id)


class Follower(Teller):
    """Env 1 fails, when all that is needed for that is there; env 0 leaves word when it is closed."""

    def __init__(self, folder: str, env_id: int = 0) -> None:
        super().__init__(env_id)
        self.folder = Path(folder)
        if env_id == 1:
            while not (self.folder / "go").exists():
                time.sleep(0.01)
            raise RuntimeError("no such map")

    def close(self) -> None:
        (self.folder / "closed").touch()


class DeadlyToBuild(Teller):
    def __init__(self, env_id: int = 0) -> None:
        if env_id == 1:
            os._exit(3)
        super().__init__(env_id)


class SlowToBuild(Teller):
    def __init__(self, env_id: int = 0) -> None:
        time.sleep(600)
        super().__init__(env_id)


def keep_the_lock() -> None:
    """No other thread of this process runs meanwhile."""
    ctypes.PyDLL(None).sleep(600)


class Greedy:
    """Makes envs, but not where it is unpickled: that takes very long, with the interpreter's lock."""

    def __call__(self) -> Teller:
        return Teller()

    def __reduce__(self) -> Any:
        return keep_the_lock, ()


class Sleeper(gymnasium.Env[np.ndarray, np.ndarray]):
    """A step takes as many seconds as its action says."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(0, 1000, (), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(float(action))
        return np.zeros(1, np.float32), 0.0, False, False, {}
