"""What is checked: a way to make envs, or one env."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium

from stepmill.envs import as_base_env
from stepmill.errors import ConfigError
from stepmill.testing.calls import Calls

__all__ = ["Subject"]


class Subject:
    """Envs of one kind, each as a ``BaseEnv``.

    Attributes:
        makes_many: Whether there can be several at once; else all checks are made on one env, seeded anew.
        is_adapted: Whether the envs are not ``BaseEnv`` by themselves.
        given_cfg: The configuration as it was given.
        first_cfg: The copy of it that the first env was built with.
    """

    def __init__(self, env: Any, cfg: Any = None) -> None:
        self.makes_many = inspect.isclass(env) or (callable(env) and not hasattr(env, "step"))
        self.is_adapted = False
        self.given_cfg = cfg
        self.first_cfg: Any = None
        self._env = env
        self._last = env  # the env itself, under an adapter
        if self.makes_many:
            return
        if not all(hasattr(env, name) for name in ("reset", "step")):
            raise ConfigError(f"check_env: expected an env, an env class or a function that makes one, got {env!r}")
        if cfg is not None:
            raise ConfigError("check_env: cfg is for a class or a function, and this env is built already")

    def env(self, calls: Calls, who: str) -> Any:
        """An env that was not used before; the one there is, where there is only one."""
        made = calls("__init__", f"the constructor{f' of {who}' if who else ''}", self._build)
        if not calls.has(made, "step"):
            raise ConfigError(f"check_env: expected {self.name} to make an env, got {made!r}")
        env = calls("as_base_env", "as_base_env(env)", as_base_env, made)
        self.is_adapted = env is not made
        self._last = made.unwrapped if calls.has(made, "unwrapped") else made
        return env

    def _build(self) -> Any:
        if not self.makes_many:
            return self._env
        if self.given_cfg is None:
            return self._env()
        cfg = copy.deepcopy(self.given_cfg)
        self.first_cfg = cfg if self.first_cfg is None else self.first_cfg
        if inspect.isclass(self._env) and issubclass(self._env, gymnasium.Env) and isinstance(cfg, Mapping):
            return self._env(**cfg)
        return self._env(cfg)

    @property
    def name(self) -> str:
        """Of the class or function; of one env, or where a function has no name, of the class of the env."""
        if not self.makes_many:
            return type(self._last).__name__
        name = getattr(self._env, "__name__", type(self._last).__name__)
        return name if name != "<lambda>" or self._last is self._env else type(self._last).__name__
