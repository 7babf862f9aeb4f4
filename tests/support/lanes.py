"""Envs that follow lists of actions: one that is given the state of another can follow on in its list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space, iterate

from support.backends import Actor, info_row, stack, view_of
from support.probes import assert_same, reset_obs, seen


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


def assert_states_go_on(pool: Any, kind: str) -> None:
    """Of two envs: saved in the middle of their lists, each may be given the state of any."""
    assert pool.state_kind == kind
    pool.reset()
    lanes = Lanes(pool, [(0, 0), (1, 0)])
    lanes.go(3)
    states, at = pool.save(), list(lanes.at)
    assert {one.kind for one in states.origins} == {kind}
    expected = lanes.go(12)
    for order in ((0, 1), (1, 0)):
        pool.restore([states[i] for i in order])
        got = Lanes(pool, [at[i] for i in order]).go(12)
        for env_id, i in enumerate(order):
            assert_same(got[env_id], expected[i])
    pool.restore(states)
    assert_same(pool.fork(1, [0])[0], pool.restore(states[1], [1])[0])
