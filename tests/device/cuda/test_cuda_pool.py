"""Pools on a GPU do what pools on threads do: the same rows, bit for bit."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stepmill
from support.cuda_pools import Both, HostGpu
from support.host_kernels import MODES
from support.probes import VIEWS, assert_same

Make = Callable[..., Both]

TASKS = ("CartPole-v1", "FrozenLake-v1", "Blackjack-v1", "NChain-v0", "Taxi-v3", "Moving-v0")


def assert_both(pools: Both, call: Callable[[Any], Any]) -> Any:
    got, expected = pools.do(call)
    assert_same(got, expected)
    return expected


def ended(view: str, result: Any) -> np.ndarray:
    if view == "dm":
        return np.flatnonzero(result.step_type == 2)
    return np.flatnonzero(result[2] | result[3] if view == "gymnasium" else result[2])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("task", TASKS)
def test_episodes_are_those_of_threads(both: Make, task: str, view: str, mode: str) -> None:
    pools = both(task, view, autoreset=mode, max_episode_steps=30)
    assert_both(pools, lambda pool: pool.reset())
    ends = 0
    for _ in range(80):
        action = pools.actions()
        over = ended(view, assert_both(pools, operator.methodcaller("step", action)))
        ends += len(over)
        if mode == "disabled" and len(over):
            assert_both(pools, operator.methodcaller("reset", over))
    assert ends > 4
    stats = [pool.stats() for pool in pools.pools]
    for name in ("steps", "episodes", "batches", "failures", "restarts", "in_flight"):
        assert stats[0][name] == stats[1][name], name


@pytest.mark.parametrize("task", ["FrozenLake-v1", "Taxi-v4"])
def test_episodes_are_those_of_gymnasium(gpu: HostGpu, task: str) -> None:
    """``verify`` compares the numbers, also of rewards, which have another type there."""
    result = stepmill.verify(task, backend="cuda", num_envs=2, steps=200)
    assert result.equal, result


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_play_has_the_infos_that_it_has_on_threads(both: Make, view: str) -> None:
    def infos(pool: Any) -> list[str]:
        played = pool.play(lambda observations, *_: np.zeros(len(observations), np.int64))
        return sorted([next(played), next(played)][1].info)

    got, expected = both("FrozenLake-v1", view).do(infos)
    assert got == expected
