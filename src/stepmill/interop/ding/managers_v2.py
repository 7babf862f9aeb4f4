"""Managers for DI-engine's middlewares: stacked observations out, actions in by position, trees back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from stepmill.errors import ActionError, ConfigError
from stepmill.interop.ding.managers import DingManager
from stepmill.interop.ding.trees import action_rows, stacked, timestep_tree
from stepmill.managers import SyncSubprocessEnvManager

__all__ = ["DingBaseEnvManagerV2", "DingManagerV2", "DingSubprocessEnvManagerV2"]


class DingManagerV2(DingManager):
    """Observations are rows of one array, or of a tree of arrays, and so are actions.

    Actions go to the envs whose observations were handed out last, in that order, whatever became ready since then;
    ``step`` waits for all of them, and its results have the same order: DI-engine pairs them by position.

    DI-engine looks only at ``done`` here, so it is never true for an abnormal step: an evaluation does not count the
    episode, and goes on with the next one.
    """

    _handed_out: list[int] | None = None

    def __init__(self, env_fn: Sequence[Any], cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(env_fn, {**(cfg or {}), "wait_num": math.inf, "step_wait_timeout": None})
        if self._settings.output != "numpy":
            raise ConfigError(f"{type(self).__name__}: output: expected 'numpy', got {self._settings.output!r}")

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that can take an action, as rows, by ascending id; none when all are DONE."""
        self._handed_out = ids = self._scheduler.await_ready()
        if not ids:
            space = self.observation_space
            return stacked([space.sample()])[:0] if isinstance(space, Space) else np.zeros(0, np.float32)
        return stacked(self._scheduler.last_observations(ids))

    def step(self, actions: Any) -> list[Any]:  # type: ignore[override]
        """Takes one action per row of the last ``ready_obs``, or of its first rows; returns one tree per action.

        The trees have ``obs``, ``reward``, ``done``, ``info`` and ``env_id``. ``info``, and fields that an
        env's timesteps have beyond these, are kept as far as they can become arrays of numbers.
        """
        self._scheduler.require_launched()
        ids, self._handed_out = self._handed_out, None
        if ids is None:
            ids = self.ready_obs_id
        rows = action_rows(actions)
        if len(rows) > len(ids):
            self._handed_out = ids
            raise ActionError(f"step: expected at most {len(ids)} actions, for the envs {ids}, got {len(rows)}")
        timesteps = super().step(dict(zip(ids, rows, strict=False)))
        return [timestep_tree(one, timesteps[one]) for one in ids[: len(rows)]]


class DingBaseEnvManagerV2(DingManagerV2):
    """``stepmill_base_v2``: ``BaseEnvManager`` for DI-engine's middlewares."""


class DingSubprocessEnvManagerV2(DingManagerV2, SyncSubprocessEnvManager):
    """``stepmill_subprocess_v2``: ``SyncSubprocessEnvManager`` for DI-engine's middlewares."""
