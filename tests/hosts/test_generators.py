"""``np_random`` and ``np_random_seed`` of a pool: those of its envs, as in Gymnasium's vector envs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import stepmill
from stepmill.errors import ClosedError, InFlightError

NUM_ENVS = 3
# Blackjack and Taxi draw 32-bit integers: half of a word may be left over.
NATIVE = ["CartPole-v1", "Blackjack-v1", "Taxi-v4", "FrozenLake-v1", "Pendulum-v1", "Acrobot-v1"]
BACKENDS = ["thread", "inline", "process"]


class Unseeded(gymnasium.Env[Any, Any]):
    """Says that it does not know its seed."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        self.np_random = np.random.default_rng(7)
        return 0, {}

    def step(self, action: Any) -> Any:
        return 1, 0.0, False, False, {}


class Drawing(Unseeded):
    """Shows a number that it draws."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        return 0, {}

    def step(self, action: Any) -> Any:
        return int(self.np_random.integers(2)), 0.0, False, False, {}


@pytest.fixture
def make() -> Iterator[Any]:
    pools: list[Any] = []

    def make_one(*args: Any, **kwargs: Any) -> Any:
        pools.append(stepmill.make(*args, **kwargs))
        return pools[-1]

    yield make_one
    for pool in pools:
        pool.close()


def states(generators: Any) -> list[Any]:
    return [one.bit_generator.state for one in generators]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", NATIVE)
def test_native_envs_have_the_generators_of_gymnasiums(make: Any, task: str, backend: str) -> None:
    pool = make(task, num_envs=NUM_ENVS, backend=backend, seed=5)
    oracle = SyncVectorEnv([lambda: gymnasium.make(task)] * NUM_ENVS)
    oracle.reset(seed=5)
    pool.reset()
    oracle.action_space.seed(1)
    for _ in range(30):
        assert pool.np_random_seed == oracle.np_random_seed == (5, 6, 7)
        assert states(pool.np_random) == states(oracle.np_random)
        actions = oracle.action_space.sample()
        oracle.step(actions)
        pool.step(actions)
    oracle.reset()
    pool.reset()
    assert states(pool.np_random) == states(oracle.np_random)
    oracle.reset(seed=[9, None, 11])
    pool.reset(seed=[9, None, 11])
    assert pool.np_random_seed == oracle.np_random_seed == (9, 6, 11)
    assert states(pool.np_random) == states(oracle.np_random)
    oracle.close()


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_python_envs_tell_their_own(make: Any, backend: str) -> None:
    pool = make(Drawing, num_envs=NUM_ENVS, backend=backend, seed=5)
    pool.reset()
    assert pool.np_random_seed == (5, 6, 7)
    for _ in range(5):
        copies = pool.np_random if backend == "process" else pickled(pool.np_random)
        obs, *_ = pool.step(np.zeros(NUM_ENVS, np.int64))
        assert obs.tolist() == [int(one.integers(2)) for one in copies]


def pickled(generators: Any) -> list[np.random.Generator]:
    copies = [np.random.Generator(np.random.PCG64()) for _ in generators]
    for copy, one in zip(copies, generators, strict=True):
        copy.bit_generator.state = one.bit_generator.state
    return copies


def test_inline_generators_are_the_envs_own(make: Any) -> None:
    pool = make(Drawing, num_envs=2, backend="inline")
    pool.reset()
    own = pool.call("get_wrapper_attr", "np_random")
    assert all(one is other for one, other in zip(own, pool.np_random, strict=True))


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_seed_that_an_env_does_not_know_is_minus_one(make: Any, backend: str) -> None:
    pool = make(Unseeded, num_envs=2, backend=backend)
    pool.reset()
    assert pool.np_random_seed == (-1, -1)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", ["CartPole-v1", Drawing])
def test_before_the_first_reset_it_is_the_seed_to_come(make: Any, task: Any, backend: str) -> None:
    if backend == "thread" and task is Drawing:
        pytest.skip("threads run native envs")
    pool = make(task, num_envs=2, backend=backend, seed=[8, 3])
    assert pool.np_random_seed == (8, 3)
    assert states(pool.np_random) == states(map(np.random.default_rng, (8, 3)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_to_draw_from_a_copy_changes_nothing(make: Any, backend: str) -> None:
    pool = make("Blackjack-v1", num_envs=2, backend=backend)
    pool.reset()
    before = states(pool.np_random)
    for one in pool.np_random:
        one.random(10)
    assert states(pool.np_random) == before


def test_a_native_env_in_flight_has_no_generator_to_show(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=2)
    pool.reset()
    pool.send(np.zeros(2, np.int64))
    with pytest.raises(InFlightError, match=r"env 0 is in flight.*recv\(\)"):
        _ = pool.np_random
    assert pool.np_random_seed == (42, 43)
    pool.recv()
    assert len(pool.np_random) == 2


def test_as_in_gymnasium_it_cannot_be_set(make: Any) -> None:
    pool = make("CartPole-v1")
    with pytest.raises(AttributeError):
        pool.np_random = np.random.default_rng(1)


def test_attributes_that_users_ask_for(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=2)
    pool.reset()
    assert pool.get_attr("render_mode") == (None, None)
    assert pool.get_attr("metadata")[1]["render_fps"] == 50
    assert pool.get_attr("observation_space") == (pool.single_observation_space,) * 2
    assert pool.get_attr("action_space") == (pool.single_action_space,) * 2
    assert pool.get_attr("spec")[1].reward_threshold == 475.0
    assert pool.get_attr("np_random_seed", [1]) == (43,)
    assert states(pool.get_attr("np_random", [1])) == states(pool.np_random[1:])


@pytest.mark.parametrize("view", ["gym", "dm"])
def test_every_view_has_them(make: Any, view: str) -> None:
    pool = make("CartPole-v1", view, num_envs=2)
    assert pool.np_random_seed == (42, 43)
    assert len(pool.np_random) == 2
    pool.close()
    with pytest.raises(ClosedError):
        _ = pool.np_random
