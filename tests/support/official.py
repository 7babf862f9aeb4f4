"""Gymnasium's envs, told to do something else: for tests of ``verify``.

``Probe-v0`` is native and does what a test asks for. Here, Gymnasium gets an env of that name, whose results can be
changed one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, load_env_creator


class PythonProbe(gymnasium.Env):
    """Does what the native Probe does, except where ``alter`` changes the result of a step or a reset.

    ``alter(env, result)`` is called with every result; ``env.calls`` and ``env.resets`` say where it is.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (), np.float32)

    def __init__(self, index: int, alter: Callable[[PythonProbe, Any], Any] | None, length: int = 10) -> None:
        self.index = index
        self.length = length
        self.alter = alter or (lambda env, result: result)
        self.steps = self.calls = self.resets = 0
        self.actions: list[Any] = []
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.draw = self.np_random.random()
        self.steps = 0
        self.resets += 1
        return self.alter(self, (self.observation(), {}))

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.calls += 1
        self.actions.append(action)
        return self.alter(self, (self.observation(), float(action), self.steps >= self.length, False, {}))

    def observation(self) -> np.ndarray:
        return np.array([self.draw, self.steps], np.float64)

    def close(self) -> None:
        self.closed = True


Alter = Callable[[PythonProbe, Any], Any]


def install_probe(monkeypatch: pytest.MonkeyPatch, alter: Alter | None = None) -> list[PythonProbe]:
    """Gives Gymnasium its own Probe-v0. Returns the list to which every env of it will be added."""
    made: list[PythonProbe] = []

    def create(fail_in: str = "", fail_at: int = 1, **config: Any) -> PythonProbe:
        made.append(PythonProbe(len(made), alter, **config))
        return made[-1]

    monkeypatch.setitem(gymnasium.registry, "Probe-v0", EnvSpec("Probe-v0", entry_point=create))
    return made


def at(env_id: int, call: int, change: Callable[[Any], Any]) -> Alter:
    """Changes one step of one env."""

    def alter(env: PythonProbe, result: Any) -> Any:
        return change(result) if len(result) == 5 and (env.index, env.calls) == (env_id, call) else result

    return alter


def fail(result: Any) -> Any:
    raise ValueError("it broke")


def change_official(monkeypatch: pytest.MonkeyPatch, id: str, create: Callable[..., Any]) -> None:
    """Changes how Gymnasium makes an id: ``create(creator, **config)`` gets what made it so far."""
    spec = copy.copy(gymnasium.registry[id])
    creator = load_env_creator(spec.entry_point)
    spec.entry_point = lambda **config: create(creator, **config)
    monkeypatch.setitem(gymnasium.registry, id, spec)
