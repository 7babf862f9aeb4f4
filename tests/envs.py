"""Python envs that the tests make pools of."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class ProbeTwin(gymnasium.Env[np.ndarray, np.ndarray]):
    """Probe-v0 (``cpp/envs/debug/probe.h``) in Python: the observation is (draw at reset, steps since)."""

    def __init__(
        self, length: int = 10, fail_in: str = "", fail_at: int = 1, fail_count: int = 1, obs_size: int = 2
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (obs_size,), np.float64)
        self.action_space = spaces.Box(-1.0, 1.0, (), np.float32)
        self.length = length
        self._fail_in, self._fail_at, self._fail_until = fail_in, fail_at, fail_at + fail_count
        self._calls = 0
        self._draw = self._steps = 0.0
        self._may_fail("constructor")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._may_fail("reset")
        self._draw, self._steps = self.np_random.random(), 0
        return self._observe(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._may_fail("step")
        self._steps += 1
        return self._observe(), float(action), self._steps >= self.length, False, {}

    def _observe(self) -> np.ndarray:
        return np.array([self._draw] + [self._steps] * (self.observation_space.shape[0] - 1), np.float64)

    def _may_fail(self, where: str) -> None:
        if self._fail_in != where:
            return
        self._calls += 1
        if self._fail_at <= self._calls < self._fail_until:
            raise RuntimeError(f"the probe was asked to fail in {where}")


def draws(seed: int, count: int) -> list[float]:
    """What a probe of that seed draws at its resets."""
    return np.random.Generator(np.random.PCG64(seed)).random(count).tolist()
