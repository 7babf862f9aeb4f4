"""Native envs one by one, where an env has to be a Python object: in managers, and in pools of several kinds."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import utils

from stepmill.errors import UnsupportedError
from stepmill.registry.factories import EnvFactory
from stepmill.system.optional import imported


class NativeFactory(EnvFactory):
    """Makes envs of an id that is native only, or of a file or library."""

    def __init__(self, task: Any, name: str) -> None:
        self._task = task
        self.__name__ = name

    def __call__(self, **config: Any) -> NativeEnv:
        return NativeEnv(self._task, **config)


class NativeEnv(gymnasium.Env[Any, Any]):
    """A native env as one of Gymnasium's: a pool of one, and the only row of its results."""

    def __init__(self, task: Any, **arguments: Any) -> None:
        self._pool = imported("stepmill.make:make")(task, autoreset="disabled", backend="inline", **arguments)
        if self._pool.spec.config["max_num_players"] > 1:
            self._pool.close()
            raise UnsupportedError(f"{self._pool.spec.id} is native and has several players, expected an env of one")
        self.observation_space = self._pool.single_observation_space
        self.action_space = self._pool.single_action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs, info = self._pool.reset(seed=None if seed is None else [seed], options=options)
        return self._only(obs), self._pool.info_rows(info)[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        place: Any = utils.create_empty_array(self.action_space, 1)
        actions = utils.concatenate(self.action_space, [action], place)
        obs, reward, terminated, truncated, info = self._pool.step(actions)
        ends = bool(terminated[0]), bool(truncated[0])
        return self._only(obs), float(reward[0]), *ends, self._pool.info_rows(info)[0]

    def _only(self, obs: Any) -> Any:
        return next(iter(utils.iterate(self._pool.observation_space, obs)))

    def get_state(self) -> Any:
        return self._pool.save()[0]

    def set_state(self, state: Any) -> None:
        self._pool.restore(state)

    def close(self) -> None:
        self._pool.close()
