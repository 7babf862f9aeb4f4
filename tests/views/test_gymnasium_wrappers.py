"""Gymnasium's own vector wrappers on a pool, beside the same on Gymnasium's vector env."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import vector as wrappers

import stepmill


def compare(id: str, autoreset: str, wrap: Callable[[VectorEnv], VectorEnv], steps: int = 300) -> dict[str, int]:
    """Plays a wrapper on a pool and on Gymnasium's vector env: everything the second shows, the first shows too."""
    oracle = wrap(
        SyncVectorEnv(
            [lambda: gymnasium.make(id, disable_env_checker=True, max_episode_steps=30)] * 4,
            autoreset_mode=AutoresetMode[autoreset.upper()],
        )
    )
    pool = wrap(stepmill.make(id, num_envs=4, autoreset=autoreset, max_episode_steps=30, num_threads=2))
    assert pool.observation_space == oracle.observation_space
    assert pool.action_space == oracle.action_space
    assert_shown(pool.reset(seed=9), oracle.reset(seed=9))
    oracle.action_space.seed(9)
    seen = {"ends": 0}
    for _ in range(steps):
        actions = oracle.action_space.sample()
        got, expected = pool.step(actions), oracle.step(actions)
        assert_shown(got, expected)
        seen["ends"] += int((expected[2] | expected[3]).sum())
    pool.close()
    oracle.close()
    assert seen["ends"] > 10
    return seen


def assert_shown(got: Any, expected: Any) -> None:
    """``expected`` is in ``got``: equal but for info keys that only pools have."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            # "t" is time on the clock; a column of "prob" that starts with a whole number loses fractions there.
            if key not in ("t", "prob"):
                assert_shown(got[key], value)
    elif isinstance(expected, list | tuple) or (isinstance(expected, np.ndarray) and expected.dtype == object):
        assert type(got) is type(expected)
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            assert_shown(mine, theirs)
    elif expected is None:
        assert got is None
    else:
        assert np.shape(got) == np.shape(expected)
        np.testing.assert_array_equal(got, expected)


WRAPPERS = {
    "RecordEpisodeStatistics": wrappers.RecordEpisodeStatistics,
    "NormalizeReward": wrappers.NormalizeReward,
    "ClipReward": lambda env: wrappers.ClipReward(env, -0.5, 0.5),
    "TransformReward": lambda env: wrappers.TransformReward(env, lambda reward: reward * 2 + 1),
    "DictInfoToList": wrappers.DictInfoToList,
    "RecordEpisodeStatistics, DictInfoToList": lambda env: wrappers.DictInfoToList(
        wrappers.RecordEpisodeStatistics(env)
    ),
}


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("id", ["CartPole-v1", "Blackjack-v1", "FrozenLake-v1"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_vector_wrappers_work_as_on_gymnasiums_vector_env(name: str, id: str, autoreset: str) -> None:
    compare(id, autoreset, WRAPPERS[name])


def shift(observation: np.ndarray) -> np.ndarray:
    return observation + np.float32(1.0)


# Gymnasium takes these in next_step mode only.
OBSERVATION_WRAPPERS = {
    "NormalizeObservation": wrappers.NormalizeObservation,
    "TransformObservation": lambda env: wrappers.TransformObservation(env, shift),
    "DtypeObservation": lambda env: wrappers.DtypeObservation(env, np.float64),
    "ReshapeObservation": lambda env: wrappers.ReshapeObservation(env, (2, 2)),
    "FlattenObservation": wrappers.FlattenObservation,
}


@pytest.mark.parametrize("name", OBSERVATION_WRAPPERS)
def test_observation_wrappers_work_as_on_gymnasiums_vector_env(name: str) -> None:
    compare("CartPole-v1", "next_step", OBSERVATION_WRAPPERS[name])


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_final_observations_of_nested_spaces_are_those_of_gymnasium(autoreset: str) -> None:
    compare("Blackjack-v1", autoreset, lambda env: env)
    compare("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3", autoreset, lambda env: env)


def types(value: Any) -> Any:
    return [types(one) for one in value] if isinstance(value, tuple) else type(value)


@pytest.mark.parametrize("backend", ["thread", "inline", "process"])
@pytest.mark.parametrize("id", ["Blackjack-v1", "FrozenLake-v1"])
def test_discrete_final_observations_are_pythons_numbers(make: Any, id: str, backend: str) -> None:
    theirs = gymnasium.make_vec(
        id, 1, "sync", vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP}, max_episode_steps=1
    )
    pools = [make(id, backend=backend, autoreset="same_step", max_episode_steps=1)]
    if backend != "thread":  # Gymnasium's own env, too
        pools.append(make(f"gymnasium:{id}", backend=backend, autoreset="same_step", max_episode_steps=1))
    seen = []
    for env in (theirs, *pools):
        env.reset(seed=3)
        seen.append(types(env.step(np.zeros(1, np.int64))[4]["final_obs"][0]))
    theirs.close()
    assert all(one == seen[0] for one in seen)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize(
    "wrap",
    [wrappers.ClipAction, lambda env: wrappers.RescaleAction(env, np.float32(-1.0), np.float32(1.0))],
    ids=["ClipAction", "RescaleAction"],
)
def test_action_wrappers_work_as_on_gymnasiums_vector_env(wrap: Any, autoreset: str) -> None:
    compare("Pendulum-v1", autoreset, wrap)


@pytest.mark.torch
def test_numpy_to_torch() -> None:
    pytest.importorskip("array_api_compat")
    compare("CartPole-v1", "next_step", wrappers.NumpyToTorch)


def test_record_episode_statistics_agrees_with_the_engine(make: Any) -> None:
    env = wrappers.RecordEpisodeStatistics(make("CartPole-v1", num_envs=4))
    env.reset()
    ends = 0
    for _ in range(300):
        info = env.step(env.action_space.sample())[4]
        if "episode" in info:
            ended = info["_episode"]
            assert np.array_equal(info["_episode_return"], ended)
            assert np.array_equal(info["episode"]["r"], info["episode_return"])
            assert np.array_equal(info["episode"]["l"], info["episode_length"])
            ends += int(ended.sum())
    assert ends > 10


def test_spaces_sample_actions_that_pools_take(make: Any) -> None:
    for id in ("CartPole-v1", "Pendulum-v1", "Blackjack-v1"):
        pool = make(id, num_envs=3)
        assert isinstance(pool.action_space, spaces.Space)
        pool.reset()
        pool.step(pool.action_space.sample())
