"""The dm view: ``dm_env.TimeStep`` with a row an env.

Every env runs through ``FIRST → MID → ... → LAST ⇢ FIRST``; the fields of a batch's TimeStep are arrays,
so its envs stand at different points of that line. Under ``autoreset="same_step"`` the row of a LAST already
holds the first observation of the next episode, so after the first reset no batch shows FIRST.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import dm_env
import numpy as np

from stepmill.errors import EnvError
from stepmill.views.base import PoolView

__all__ = ["DmPool", "Observation", "Players"]

_FIRST, _MID, _LAST = (np.int32(int(kind)) for kind in dm_env.StepType)


class Players(NamedTuple):
    """Which env each row of a per-player array belongs to."""

    env_id: np.ndarray


class Observation(NamedTuple):
    """What a batch's TimeStep holds as its observation."""

    obs: Any
    env_id: np.ndarray
    elapsed_step: np.ndarray
    players: Players
    info: dict[str, Any]


class DmPool(PoolView):
    """Results are ``dm_env.TimeStep``; rewards and discounts float32.

    The discount is the env's own where it has one (an info key ``discount``), else 0 at a real end and 1
    elsewhere: at a time limit the step is LAST with discount 1.
    """

    def observation_spec(self) -> Any:
        """The observation of a single env."""
        return self._pool_spec.observation_spec()

    def action_spec(self) -> Any:
        """The action of a single env."""
        return self._pool_spec.action_spec()

    def reward_spec(self) -> Any:
        """The reward of a single env."""
        return self._pool_spec.reward_spec()

    def discount_spec(self) -> Any:
        """The discount of a single env."""
        return self._pool_spec.discount_spec()

    def reset(
        self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> dm_env.TimeStep:
        """Resets all envs, or those of ``env_id`` in that order: FIRST, reward 0, discount 1.

        ``options["reset_mask"]`` chooses envs; the rows of the others show where they stand: MID, or FIRST.
        """
        try:
            return _begun(*self._reset(env_id, seed, options))
        except EnvError as error:
            error.batch = error.batch and _begun(*error.batch)
            raise

    def step(self, action: Any, env_id: Any = None) -> dm_env.TimeStep:
        """``send`` then ``recv``."""
        self._core.send(action, env_id)
        return self.recv()

    def recv(self, timeout: float | None = None) -> dm_env.TimeStep:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results."""
        try:
            return _translate(self._core.recv(timeout))
        except EnvError as error:
            error.batch = error.batch and _translate(error.batch)
            raise


def _observation(obs: Any, info: dict[str, Any]) -> Observation:
    return Observation(obs, info["env_id"], info["elapsed_step"], Players(info["players"]["env_id"]), info)


def _begun(obs: Any, info: dict[str, Any]) -> dm_env.TimeStep:
    step_type = np.where(info["elapsed_step"] == 0, _FIRST, _MID)
    reward = np.zeros(len(info["players"]["env_id"]), np.float32)
    return dm_env.TimeStep(step_type, reward, np.ones(len(step_type), np.float32), _observation(obs, info))


def _translate(result: Any) -> dm_env.TimeStep:
    obs, reward, terminated, truncated, info = result
    middle = np.where(info["elapsed_step"] == 0, _FIRST, _MID)
    step_type = np.where(terminated | truncated, _LAST, middle)
    discount = (~terminated).astype(np.float32)
    for told in (info, info.get("final_info", {})):  # the last: of an end whose row shows the next episode
        if "discount" in told:
            discount = np.where(told["_discount"], told["discount"], discount).astype(np.float32)
    return dm_env.TimeStep(step_type, reward, discount, _observation(obs, info))
