"""Gymnasium's envs, told to do something else: for tests of ``verify``.

``Probe-v0`` is native and does what a test asks for. Here, Gymnasium gets an env of that name, whose results can be
changed one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import EnvSpec, load_env_creator

from support.envs import ProbeTwin


class PythonProbe(ProbeTwin):
    """Does what the native Probe does, except where ``alter`` changes the result of a step or a reset.

    ``alter(env, result)`` is called with every result; ``env.calls`` and ``env.resets`` say where it is.
    """

    def __init__(self, index: int, alter: Callable[[PythonProbe, Any], Any] | None, length: int = 10) -> None:
        super().__init__(length)
        self.index = index
        self.alter = alter or (lambda env, result: result)
        self.calls = self.resets = 0
        self.actions: list[Any] = []

    @property
    def steps(self) -> int:
        """Of this episode."""
        return self._steps

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += 1
        return self.alter(self, super().reset(seed=seed, options=options))

    def step(self, action: Any) -> Any:
        self.calls += 1
        self.actions.append(action)
        return self.alter(self, super().step(action))


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
