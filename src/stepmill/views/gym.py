"""The gym view: four results a step, one ``done``, as gym and EnvPool's users know it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import EnvError, UnsupportedError
from stepmill.views.base import PoolView

__all__ = ["GymPool"]


class GymPool(PoolView):
    """Results are ``(obs, reward, done, info)``, rewards float32.

    ``info["TimeLimit.truncated"]`` tells the ends that are no real ones: cut off by a limit while the
    episode could have gone on.
    """

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The space of a single env."""
        return self._pool_spec.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The space of a single env."""
        return self._pool_spec.action_space

    def reset(self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> Any:
        """Resets all envs, or those of ``env_id`` in that order, and returns their observations."""
        if env_id is None and self.is_async:
            self._core.check_usable()
            raise UnsupportedError(
                "reset() returns observations only, and with batch_size < num_envs their ids would be lost: "
                "use async_reset() and recv()"
            )
        try:
            return self._reset(env_id, seed, options)[0]
        except EnvError as error:
            error.batch = error.batch and error.batch[0]
            raise

    def step(self, action: Any, env_id: Any = None) -> tuple[Any, np.ndarray, np.ndarray, dict[str, Any]]:
        """``send`` then ``recv``."""
        self._core.send(action, env_id)
        return self.recv()

    def recv(self, timeout: float | None = None) -> tuple[Any, np.ndarray, np.ndarray, dict[str, Any]]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results."""
        try:
            return _translate(self._core.recv(timeout))
        except EnvError as error:
            error.batch = error.batch and _translate(error.batch)
            raise


def _translate(result: Any) -> tuple[Any, np.ndarray, np.ndarray, dict[str, Any]]:
    observation, reward, terminated, truncated, info = result
    info["TimeLimit.truncated"] = truncated & ~terminated
    return observation, reward, terminated | truncated, info
