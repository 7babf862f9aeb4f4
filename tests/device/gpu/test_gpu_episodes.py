"""Every id on a GPU beside the same on threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from support.probes import MODES, assert_same

pytestmark = pytest.mark.usefixtures("one_cache")

OWN = str(Path(__file__).resolve().parents[3] / "examples" / "own_envs")
EXACT = (
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v3",
    "Taxi-v4",
    "Blackjack-v1",
    "Catch-v0",
    "NChain-v0",
    "Template-v0",
    f"{OWN}/coin.h",
)
WITH_SINES = (
    "CartPole-v1",
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
    "Moving-v0",
    "Sliding-v0",
    f"{OWN}/cart_pole.h",
)
NUM_ENVS = 300  # of which the last block of threads is not full


class Pair:
    """The same pool on a GPU and on threads."""

    def __init__(self, task: str, **arguments: Any) -> None:
        given = {"num_envs": NUM_ENVS, "seed": 9, **arguments}
        self.gpu = stepmill.make(task, backend="cuda", **given)
        self.threads = stepmill.make(task, backend="thread", **given)
        self.threads.action_space.seed(5)

    def reset(self, **arguments: Any) -> tuple[Any, Any]:
        return self.gpu.reset(**arguments), self.threads.reset(**arguments)

    def step(self) -> tuple[Any, Any]:
        """One of all envs. Rewards of a GPU are float32."""
        action = self.threads.action_space.sample()
        got, (obs, reward, *rest) = self.gpu.step(action), self.threads.step(action)
        return got, (obs, reward.astype(np.float32), *rest)

    def over(self, result: Any) -> np.ndarray:
        over: np.ndarray = result[2] | result[3]
        return over

    def close(self) -> None:
        self.gpu.close()
        self.threads.close()


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("task", EXACT, ids=lambda task: Path(task).name)
def test_whole_episodes_are_equal_bit_for_bit(task: str, autoreset: str) -> None:
    pools = Pair(task, autoreset=autoreset, max_episode_steps=40)
    try:
        assert_same(*pools.reset())
        for _ in range(200):
            got, expected = pools.step()
            assert_same(got, expected)
            if autoreset == "disabled" and pools.over(expected).any():
                got, expected = pools.reset(options={"reset_mask": pools.over(expected)})
                assert_same(got, expected)
        assert pools.gpu.stats()["episodes"] == pools.threads.stats()["episodes"] > 0
        states = pools.gpu.save()
        assert_same(*pools.reset(seed=77))
        assert_same(pools.gpu.restore(states)[0], got[0])
    finally:
        pools.close()


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("task", WITH_SINES, ids=lambda task: Path(task).name)
def test_episodes_with_angles_begin_equal_and_stay_close(task: str, autoreset: str) -> None:
    pools = Pair(task, autoreset=autoreset)
    try:
        assert_same(*pools.reset())
        for _ in range(12):
            got, expected = pools.step()
            np.testing.assert_array_equal(got[2], expected[2])
            np.testing.assert_array_equal(got[3], expected[3])
            np.testing.assert_allclose(got[1], expected[1], rtol=1e-5, atol=1e-6)
            for one, other in zip(leaves(got[0]), leaves(expected[0]), strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
            if autoreset == "disabled" and pools.over(expected).any():
                assert_same(*[result[0] for result in pools.reset(seed=3)])
        assert_same(*pools.reset(seed=77))
    finally:
        pools.close()


def leaves(tree: Any) -> list[np.ndarray]:
    if isinstance(tree, dict):
        return [leaf for one in tree.values() for leaf in leaves(one)]
    if isinstance(tree, tuple):
        return [leaf for one in tree for leaf in leaves(one)]
    return [tree]


@pytest.mark.parametrize("task", ["CartPole-v1", "Taxi-v3"])
def test_the_same_seed_twice_is_equal_whatever_envs_are_around(task: str) -> None:
    alone = stepmill.make(task, backend="cuda", num_envs=1, seed=40)
    among = stepmill.make(task, backend="cuda", num_envs=NUM_ENVS, seed=0)
    try:
        alone.reset(), among.reset()
        among.action_space.seed(2)
        for _ in range(300):
            action = among.action_space.sample()
            few, many = alone.step(action[40:41]), among.step(action)
            for one, all_ in zip(few[:4], many[:4], strict=True):
                np.testing.assert_array_equal(one[0], all_[40])
    finally:
        alone.close()
        among.close()
