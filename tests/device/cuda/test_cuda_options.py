"""Actions, seeds and options of resets for envs on a GPU, right and wrong, beside threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stepmill import errors
from support.cuda_pools import Both
from support.probes import assert_same

Make = Callable[..., Both]
N = 4


def outcomes(pools: Both, call: Callable[[Any], Any]) -> Any:
    """Asserts that both do the same, or raise the same."""

    def outcome(pool: Any) -> Any:
        try:
            return call(pool)
        except errors.StepmillError as error:
            return type(error), str(error)

    got, expected = pools.do(outcome)
    assert_same(got, expected)
    return expected


OPTIONS: list[Any] = [
    {"low": -0.5, "high": 0.5},
    {"low": 0.01},
    {"low": 0.5, "high": -0.5},
    {"low": "a"},
    {"low": np.nan},
    {"lo": 0.1},
    {"low": None},
    3,
    [None] * N,
    [{"low": 0.02}] * N,
    [{"low": 0.02}] * 3,
    {},
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_options_of_resets(both: Make, options: Any) -> None:
    pools = both("CartPole-v1", num_envs=N)
    result = outcomes(pools, lambda pool: pool.reset(options=options))
    outcomes(pools, lambda pool: pool.reset(seed=4, options=options))
    outcomes(pools, lambda pool: pool.reset(seed=[1, None, 2, 3]))
    if isinstance(options, dict) and "low" in options and isinstance(result[0], np.ndarray):
        outcomes(pools, lambda pool: pool.reset([2, 0], options=options))
        outcomes(pools, lambda pool: pool.async_reset([1], options=options))
        outcomes(pools, lambda pool: pool.recv())
    action = np.ones(N, int)
    for _ in range(30):
        outcomes(pools, lambda pool: pool.step(action))


@pytest.mark.parametrize("begun", [[], [1], [0, 2]])
def test_options_beside_a_mask_are_for_the_envs_that_it_names(both: Make, begun: list[int]) -> None:
    """The others begin too, if they have not yet, but as they would."""
    pools = both("CartPole-v1", num_envs=N)
    if begun:
        outcomes(pools, lambda pool: pool.reset(begun))
    mask = np.array([True, False, True, False])
    outcomes(pools, lambda pool: pool.reset(options={"low": 0.5, "high": 0.6, "reset_mask": mask}))
    action = np.ones(N, int)
    for _ in range(30):
        outcomes(pools, lambda pool: pool.step(action))


def test_options_that_differ_are_refused(both: Make) -> None:
    pool = both("CartPole-v1", num_envs=N).gpu
    with pytest.raises(errors.ResetOptionError, match="expected the same dict for all envs"):
        pool.reset(options=[{"low": 0.01}, None, None, None])


@pytest.mark.parametrize("seed", [7, [3, 3, 1, 2**63 - 1], 0])
def test_seeds_of_make(both: Make, seed: Any) -> None:
    pools = both("Taxi-v3", num_envs=N, seed=seed)
    for call in (
        lambda pool: pool.np_random_seed,
        lambda pool: pool.reset(),
        lambda pool: pool.reset([3, 1], seed=[None, 8]),
        lambda pool: pool.np_random_seed,
        lambda pool: pool.reset(seed=11),
        lambda pool: pool.reset(),
        lambda pool: pool.reset([2], seed=2**64),
        lambda pool: pool.np_random_seed,
    ):
        outcomes(pools, call)


def test_a_seed_is_drawn(both: Make) -> None:
    pool = both("Taxi-v3", num_envs=N, seed=None).gpu
    assert len(set(pool.np_random_seed)) == N
    assert pool.config["seed"] == list(pool.np_random_seed)


def test_an_env_depends_on_its_seed_alone(both: Make) -> None:
    few, many = both("Blackjack-v1", num_envs=2, seed=[5, 9]), both("Blackjack-v1", num_envs=300, seed=[9] * 299 + [5])
    for _ in range(40):
        one = few.gpu.step(np.array([1, 0]))
        other = many.gpu.step(np.array([0] * 299 + [1]))
        for a, b in zip(one[0], other[0], strict=True):
            assert (a[0], a[1]) == (b[299], b[17])


ACTIONS: dict[str, list[Any]] = {
    "CartPole-v1": [
        np.array([0, 1, 2, 0]),
        np.array([0, -1, 1, 0]),
        np.zeros(3, int),
        np.zeros((4, 1), int),
        np.ones(4, np.float32),
        np.ones(4, object),
        np.ones(4, complex),
        [0.5] * 4,
        [np.nan] * 4,
        [1] * 4,
        [True] * 4,
        [[1]] * 4,
        "left",
        None,
        3,
        {"action": [1, 0], "env_id": [2, 1]},
        {"action": [1, 0], "env_id": [2, 2]},
        {"action": [1, 0], "env_id": [2, 4]},
    ],
    "Pendulum-v1": [
        np.zeros((4, 1)),
        np.full((4, 1), 3.0),
        np.full((4, 1), np.nan),
        np.full((4, 1), np.inf),
        np.zeros(4),
        [[1]] * 4,
    ],
    "Moving-v0": [
        (np.array([0, 1, 2, 3]), np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)),
        (np.zeros(4, int), np.zeros((4, 1), np.float32), np.full((4, 1), -2.0, np.float32)),
        (np.zeros(4, int), np.zeros((4, 1), np.float32), np.zeros((4, 1), np.float32)),
        (np.zeros(4, int),),
        None,
        np.zeros(4, int),
    ],
}


@pytest.mark.parametrize("bounds", ["pass", "clip", "error"])
@pytest.mark.parametrize("task", ACTIONS)
def test_actions_of_numpy_are_checked_as_on_threads(both: Make, task: str, bounds: str) -> None:
    pools = both(task, num_envs=N, action_bounds=bounds)
    outcomes(pools, lambda pool: pool.reset()[1])
    for action in ACTIONS[task]:
        got, expected = (outcome(pool, action) for pool in pools.pools)
        assert got == expected
        assert pools.gpu.in_flight == []
    pools.gpu.check()


def outcome(pool: Any, action: Any) -> Any:
    try:
        return pool.step(action)[4]["elapsed_step"].tolist()
    except errors.StepmillError as error:
        return type(error), str(error)
