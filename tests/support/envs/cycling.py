"""Envs that play from a script, for the tests of wrappers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

VECTOR = spaces.Box(-np.inf, np.inf, (2,), np.float32)
IMAGE = spaces.Box(0, 255, (2, 3, 1), np.uint8)
NESTED = spaces.Dict(
    {
        "camera": IMAGE,
        "gear": spaces.Discrete(3, start=-1),
        "rest": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(-1, 1, (), np.float64)]),
    }
)


class ScriptedEnv(gymnasium.Env[Any, Any]):
    """Shows ``observations[0]`` at a reset and the next one per step, over and over; its rewards go the same way.

    The episode ends with its ``length``-th step, as ``end`` says: terminated, truncated or both. It shows its own
    memory: one array a space, and one info, written again and again, as frugal envs do.
    """

    def __init__(
        self,
        observations: Sequence[Any] = ((0.0, 0.0),),
        rewards: Sequence[Any] = (1.0,),
        observation_space: spaces.Space[Any] = VECTOR,
        action_space: spaces.Space[Any] | None = None,
        length: int | None = None,
        end: str = "terminated",
        last_info: dict[str, Any] | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = spaces.Discrete(3) if action_space is None else action_space
        self.received: list[Any] = []
        self.resets: list[Any] = []
        self._observations, self._rewards = list(observations), list(rewards)
        self._length, self._end, self._last_info = length, end, last_info or {}
        self._steps = 0
        self._info: dict[str, Any] = {}
        self._memory = (
            np.zeros(observation_space.shape, observation_space.dtype) if _is_box(observation_space) else None
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.resets.append((seed, options))
        self._steps = 0
        self._info.clear()
        return self._show(), self._info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.received.append(action)
        reward = self._rewards[self._steps % len(self._rewards)]
        self._steps += 1
        is_over = self._steps == self._length
        self._info["steps"] = self._steps
        if is_over:
            self._info.update(self._last_info)
        terminated, truncated = is_over and self._end != "truncated", is_over and self._end != "terminated"
        return self._show(), reward, terminated, truncated, self._info

    def _show(self) -> Any:
        observation = self._observations[self._steps % len(self._observations)]
        if self._memory is None:
            return observation
        self._memory[...] = observation
        return self._memory


def _is_box(space: spaces.Space[Any]) -> bool:
    return isinstance(space, spaces.Box)


def play(
    env: gymnasium.Env[Any, Any], steps: int, action: Any = 0
) -> list[tuple[Any, Any, bool, bool, dict[str, Any]]]:
    """A reset, then copies of all that comes of some steps; resets after an end."""
    rows = []
    env.reset()
    for _ in range(steps):
        row = env.step(action)
        rows.append(copy.deepcopy(row))
        if row[2] or row[3]:
            env.reset()
    return rows


def rewards_of(env: gymnasium.Env[Any, Any], steps: int) -> list[float]:
    """The rewards of some steps, with a reset after every end."""
    return [row[1] for row in play(env, steps)]
