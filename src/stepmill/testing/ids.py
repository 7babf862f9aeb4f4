"""Envs of an id that ``make`` knows, one at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.vector import utils

from stepmill.errors import UnsupportedError
from stepmill.make import make
from stepmill.sources.find import find_source
from stepmill.sources.source import NativeSource


class EnvOfId:
    """A function that makes envs: Python envs as they are, native ones in a pool of one."""

    def __init__(self, id: str) -> None:
        self.__name__ = id
        source = find_source(id, 1, {}, None, "auto", None, None)  # raises if there is no such id
        if isinstance(source, NativeSource) and source.max_num_players > 1:
            raise UnsupportedError(f"check_env: {id} is native and has several players, expected an env of one")

    def __call__(self, **config: Any) -> Any:
        source = find_source(self.__name__, 1, config, None, "auto", None, None)
        if isinstance(source, NativeSource):
            return _NativeEnv(self.__name__, config)
        return source.call_factory(0)


class _NativeEnv(gymnasium.Env[Any, Any]):
    """A native env as one of Gymnasium's: a pool of one, and the only row of its results."""

    def __init__(self, id: str, config: Mapping[str, Any]) -> None:
        self._pool = make(id, autoreset="disabled", backend="inline", **config)
        self.observation_space = self._pool.single_observation_space
        self.action_space = self._pool.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, _ = self._pool.reset(seed=None if seed is None else [seed], options=options)
        return self._only(obs), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        place: Any = utils.create_empty_array(self.action_space, 1)
        actions = utils.concatenate(self.action_space, [action], place)
        obs, reward, terminated, truncated, _ = self._pool.step(actions)
        return self._only(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), {}

    def _only(self, obs: Any) -> Any:
        return next(iter(utils.iterate(self._pool.observation_space, obs)))

    def close(self) -> None:
        self._pool.close()
