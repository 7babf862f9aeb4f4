"""The gym view: four results per step, with one ``done``, as users of gym and EnvPool know it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Generic

import numpy as np
from gymnasium import spaces

from stepmill import _native
from stepmill.errors import UnsupportedError
from stepmill.pool.direct import Call, direct
from stepmill.pool.settings import Settings
from stepmill.spec import PoolSpec
from stepmill.views.base import Array, PoolView

__all__ = ["GymPool"]


class GymPool(PoolView, Generic[Array]):
    """Results are ``(obs, reward, done, info)``; rewards are float32.

    ``info["TimeLimit.truncated"]`` marks episodes that did not really end: a limit cut them off.
    """

    def __init__(self, engine: _native.Engine, spec: PoolSpec, settings: Settings) -> None:
        super().__init__(engine, spec, settings)
        if (output := self._output) is None:
            engine.show_as(_translate, operator.itemgetter(0), players=True)
        else:
            engine.show_as(
                lambda result: output.before_info(_translate(result)), lambda result: output(result[0])[0], players=True
            )
        self._take_engine_calls(GymPool)

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The space of a single env."""
        return self._pool_spec.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The space of a single env."""
        return self._pool_spec.action_space

    @direct
    def reset(self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> Call[Any]:
        """Resets all envs, or those of ``env_id`` in that order, and returns their observations."""
        if env_id is None and self.is_async:
            self._engine.check_usable()
            raise UnsupportedError(
                "reset() returns observations only, and with batch_size < num_envs their ids would be lost: "
                "use async_reset() and recv()"
            )
        return self._engine.reset, self._reset_arguments(env_id, seed, options)

    @direct
    def step(self, action: Any, env_id: Any = None) -> Call[tuple[Any, Array, Array, dict[str, Any]]]:
        """``send`` then ``recv``."""
        return self._engine.step, (action, env_id)

    @direct
    def recv(self, timeout: float | None = None) -> Call[tuple[Any, Array, Array, dict[str, Any]]]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results."""
        return self._engine.recv, (timeout,)


def _translate(result: Any) -> tuple[Any, np.ndarray, np.ndarray, dict[str, Any]]:
    observation, reward, terminated, truncated, info = result
    info["TimeLimit.truncated"] = truncated > terminated  # `truncated & ~terminated`, in one pass
    return observation, reward, terminated | truncated, info
