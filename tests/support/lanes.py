"""Envs that follow lists of actions: one that is given the state of another can follow on in its list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space, iterate

from support.backends import Actor, info_row, stack, view_of
from support.probes import reset_obs, seen


class Lanes:
    """Envs that each follow a list of actions of their own, wherever they are: ``at`` is (lane, time) of each env."""

    def __init__(self, pool: Any, at: Sequence[tuple[int, int]]) -> None:
        self.pool, self.at = pool, list(at)
        self._samples = {lane: Actor(pool, lane)._samples for lane, _ in at}

    def go(self, steps: int) -> list[list[Any]]:
        """What each env shows in its next steps, without its number."""
        pool, view = self.pool, view_of(self.pool)
        batched = batch_space(pool.spec.observation_space, len(self.at))
        rows: list[list[Any]] = [[] for _ in self.at]
        for _ in range(steps):
            result = seen(view, pool.step(stack(pool.spec.action_space, [self._samples[i][t] for i, t in self.at])))
            self.at = [(lane, time + 1) for lane, time in self.at]
            for env_id, shown in enumerate(iterate(batched, result.obs)):
                info = info_row(result.info, env_id)
                del info["env_id"]
                rows[env_id].append([shown, result.reward[env_id], result.done[env_id], info])
            ended = np.flatnonzero(result.done)
            if pool.config["autoreset"] == "disabled" and len(ended):
                first = reset_obs(view, pool.reset(ended))
                some = batch_space(pool.spec.observation_space, len(ended))
                for env_id, shown in zip(ended, iterate(some, first), strict=True):
                    rows[env_id].append([shown])
        return rows
