"""Envs of the part ``training``, as ids of Gymnasium: ``benchmarks.training_envs:Pong-v5`` imports this module."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from benchmarks.python_envs import work

ITERATIONS = 16_000  # about a millisecond


def pong() -> gymnasium.Env[Any, Any]:
    """Pong with Gymnasium's wrappers, as our ``Pong-v5`` is preprocessed."""
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(env), 4)


class Slow(gymnasium.Env[np.ndarray, int]):
    """A Python env that works for a while in each step, as simulators do."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        work(ITERATIONS)
        return self._observe(), float(action), bool(self.np_random.random() < 0.01), False, {}

    def _observe(self) -> np.ndarray:
        return self.np_random.uniform(-1.0, 1.0, 8).astype(np.float32)


gymnasium.register("Pong-v5", pong)
gymnasium.register("Slow-v0", Slow)
