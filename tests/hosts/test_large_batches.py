"""Actions so many that threads share the reading of them: they are checked, taken and copied as few are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.probes import assert_same

N = 40_000  # float32 and int64: both are read in many pieces
THREADS = 4  # few threads do not share it
BAD = {"CartPole-v1": 2, "Pendulum-v1": np.nan}


def make(task: str, **settings: Any) -> Any:
    pool = stepmill.make(task, num_envs=N, **settings)
    pool.reset()
    return pool


def draw(task: str, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if task == "CartPole-v1":
        return generator.integers(0, 2, N)
    return generator.uniform(-2, 2, (N, 1)).astype(np.float32)


@pytest.mark.parametrize("task", BAD)
def test_they_reach_their_envs_and_the_caller_may_overwrite_them(task: str) -> None:
    with make(task, num_threads=THREADS) as pool, make(task, backend="inline") as twin:
        for seed in range(3):
            action = draw(task, seed)
            expected = twin.step(action)
            assert_same(pool.step(action), expected)
        kept = draw(task, 3)
        action = kept.copy()
        pool.send(action)
        action[:] = BAD[task]
        assert_same(pool.recv(), twin.step(kept))


@pytest.mark.parametrize("task", BAD)
def test_they_reach_the_envs_that_are_named(task: str) -> None:
    ids = np.random.default_rng(0).permutation(N)
    with make(task, num_threads=THREADS) as pool, make(task, backend="inline") as twin:
        action = draw(task, 0)
        assert_same(pool.step(action, ids), twin.step(action, ids))
        assert_same(pool.step(action), twin.step(action))


@pytest.mark.parametrize("row", [0, 9_000, N - 1])
@pytest.mark.parametrize("task", BAD)
def test_a_bad_one_anywhere_is_refused_and_changes_nothing(task: str, row: int) -> None:
    with make(task, num_threads=THREADS) as pool, make(task, backend="inline") as twin:
        action = draw(task, 0)
        spoilt = action.copy()
        spoilt[row] = BAD[task]
        for method in (pool.step, pool.send):
            with pytest.raises(errors.ActionError, match=rf"env {row}\b"):
                method(spoilt)
            assert pool.stats()["steps"] == N  # those of the reset
        with pytest.raises(errors.NothingInFlightError):
            pool.recv()
        assert_same(pool.step(action), twin.step(action))
