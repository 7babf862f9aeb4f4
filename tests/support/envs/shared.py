"""Factories that hand out one env again and again. Workers import this module for them, so it is quick to import."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium

from stepmill.envs import DingEnvWrapper
from support.envs.unmovable import Walk

the_env = Walk()


others = SimpleNamespace(env=Walk())


def from_globals() -> Any:
    return the_env


def from_a_global_object() -> Any:
    return others.env


def by_another_function() -> Any:
    return from_globals()


def given(env: Any) -> Any:
    return env


class Maker:
    """Keeps an env, and gives it out in several ways."""

    shared = Walk()

    def __init__(self) -> None:
        self.env = Walk()

    def make(self) -> Any:
        return self.env

    def make_by_another(self) -> Any:
        return self.make()

    def __call__(self) -> Any:
        return self._wrapped()

    def _wrapped(self) -> Any:
        return gymnasium.Wrapper(self.env)

    @classmethod
    def make_shared(cls) -> Any:
        return cls.shared


def captured() -> Any:
    env = Walk()
    return lambda: env


def by_default() -> Any:
    return lambda env=Walk(): env  # noqa: B008


def wrapped() -> Any:
    env = Walk()
    return lambda: gymnasium.wrappers.TimeLimit(gymnasium.Wrapper(env), 10)


def unwrapped() -> Any:
    env = gymnasium.Wrapper(Walk())
    return lambda: env.unwrapped


def attribute() -> Any:
    held = SimpleNamespace(inner=SimpleNamespace(env=Walk()))
    return lambda: held.inner.env


def as_base_env() -> Any:
    env = Walk()
    return lambda: DingEnvWrapper(env)


SHARED: dict[str, Callable[[], Any]] = {
    "captured": captured,
    "default": by_default,
    "wrapped": wrapped,
    "unwrapped": unwrapped,
    "attribute": attribute,
    "as a BaseEnv": as_base_env,
    "global": lambda: from_globals,
    "attribute of a global": lambda: from_a_global_object,
    "another function": lambda: by_another_function,
    "partial": lambda: functools.partial(given, Walk()),
    "partial by name": lambda: functools.partial(functools.partial(given), env=Walk()),
    "bound method": lambda: Maker().make,
    "method of a method": lambda: Maker().make_by_another,
    "class method": lambda: Maker.make_shared,
    "callable object": Maker,
}
