"""Worlds that are unusual are run, with their values; those that cannot be are refused when the pool is made."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from gymnasium import spaces  # noqa: E402

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from stepmill.sources.jax_world import Begun, JaxWorld, Moved  # noqa: E402
from support.jax_worlds import counting_world  # noqa: E402

BOX = spaces.Box(-np.inf, np.inf, (2,), np.float32)


def world_of(reset: Callable[..., Any], step: Callable[..., Any], space: Any = BOX, **others: Any) -> JaxWorld:
    return JaxWorld("Odd", space, spaces.Discrete(2), reset, step, **others)


class Pair(NamedTuple):
    a: Any
    b: Any


EVERY_KIND = spaces.Dict(
    {
        "bool": spaces.Box(0, 1, (), bool),
        "bytes": spaces.Box(0, 255, (2, 1), np.uint8),
        "double": spaces.Box(-np.inf, np.inf, (1,), np.float64),
        "long": spaces.Discrete(10, start=-5),
        "parts": spaces.Tuple([spaces.MultiDiscrete([3, 4]), spaces.Dict({"deep": spaces.MultiBinary(3)})]),
    }
)


def shown_of(count: Any) -> Any:
    """An observation in whatever types come out."""
    return {
        "bool": count > 1,
        "bytes": jnp.full((2, 1), 2 * count),
        "double": jnp.array([0.5]) * count,
        "long": count - 5,
        "parts": (jnp.array([1, 2]) * (count % 2), {"deep": jnp.array([1, 0, 1])}),
    }


def every_kind(cheap: bool) -> JaxWorld:
    def step(key: Any, state: Any, action: Any) -> Moved:
        info = {"pair": Pair(state, {"b": action}), "deep": {"er": {"count": state + 1}}, "flag": action == 1}
        return Moved(state + 1, shown_of(state + 1), state, state + 1 >= 3, False, info)  # an int as a reward

    return world_of(lambda key: Begun(0, shown_of(0)), step, EVERY_KIND, resets_cheaply=cheap)


@pytest.mark.parametrize("cheap", [True, False], ids=["cheap", "in-parts"])
@pytest.mark.parametrize("count", [1, 3])
def test_every_kind_of_observation_and_of_info(count: int, cheap: bool) -> None:
    with stepmill.make(every_kind(cheap), num_envs=count, autoreset="same_step") as pool:
        observation, info = pool.reset()
        assert pool.observation_space.contains(observation)
        assert "pair" not in info
        for i in (1, 2, 0, 1):
            observation, reward, terminated, _, info = pool.step(np.arange(count) % 2)
            assert pool.observation_space.contains(observation)
            assert observation["long"].tolist() == [i - 5] * count
            assert observation["double"].tolist() == [[i / 2]] * count
            assert reward.dtype == np.float64
            assert info["elapsed_step"].tolist() == [i] * count
            if i:
                assert reward.tolist() == [i - 1] * count
                assert info["pair"].a.tolist() == [i - 1] * count
                assert info["deep"]["er"]["count"].tolist() == [i] * count
            else:
                assert terminated.all()
                assert info["episode_return"].tolist() == [3.0] * count
                last = info["final_obs"][count - 1]
                assert EVERY_KIND.contains({**last, "long": np.int64(last["long"])})
                assert info["final_info"]["deep"]["er"]["count"].tolist() == [3] * count
        if count == 3:
            *_, info = pool.step([1, 0], [2, 0])
            assert info["pair"].b["b"].tolist() == [1, 0]
            assert info["flag"].tolist() == [True, False]


@pytest.mark.parametrize("cheap", [True, False], ids=["cheap", "in-parts"])
def test_keys_of_jax_in_the_state(cheap: bool) -> None:
    def reset(key: Any) -> Begun:
        return Begun({"key": jax.random.wrap_key_data(key), "count": 0}, jnp.zeros(2))

    def step(key: Any, state: Any, action: Any) -> Moved:
        state = {"key": jax.random.split(state["key"])[0], "count": state["count"] + 1}
        return Moved(state, jax.random.uniform(state["key"], (2,)), 1, state["count"] >= 3, False)

    world = world_of(reset, step, resets_cheaply=cheap)
    with stepmill.make(world, num_envs=3) as pool, stepmill.make(world, num_envs=3) as other:
        pool.reset()
        pool.step([0, 0, 0])
        pool.step([1], [1])
        pool.reset([2])
        states = pool.save()
        expected = [pool.step([0, 1, 0])[0].tolist() for _ in range(5)]
        assert len({str(one) for one in expected}) == 5
        copies = [states, list(states), pickle.loads(pickle.dumps(states)), pickle.loads(pickle.dumps(list(states)))]
        for again in copies:
            other.restore(again)
            assert [other.step([0, 1, 0])[0].tolist() for _ in range(5)] == expected
        pool.restore(states)
        file = io.BytesIO()
        pool.checkpoint(file)
        file.seek(0)
        with stepmill.resume(file, task=world) as resumed:
            assert [resumed.step([0, 1, 0])[0].tolist() for _ in range(5)] == expected
        assert pool.stats()["memory_bytes"] > 0


def test_a_state_whose_type_a_step_changes() -> None:
    def step(key: Any, state: Any, action: Any) -> Moved:
        return Moved(state + 0.5, jnp.stack([state, state]), state, False, False, {"told": state})

    with stepmill.make(world_of(lambda key: Begun(0, jnp.zeros(2)), step), num_envs=2) as pool:
        pool.reset()
        for i in range(3):
            observation, reward, *_, info = pool.step([0, 0])
            assert observation.tolist() == [[i / 2] * 2] * 2
            assert reward.tolist() == info["told"].tolist() == [i / 2] * 2


@pytest.mark.parametrize("output", ["jax", "numpy"])
def test_an_observation_that_is_the_state_is_the_caller_s_own(output: str) -> None:
    """States are given away to the next step; what was handed out is not."""

    def reset(key: Any) -> Begun:
        state = jnp.zeros(2)
        return Begun(state, state, {"state": state})

    def step(key: Any, state: Any, action: Any) -> Moved:
        state = state + 1
        return Moved(state, state, 0.0, False, False, {"state": state})

    with stepmill.make(world_of(reset, step), num_envs=2, output=output) as pool:
        first, info = pool.reset()
        kept = [(first, info["state"])]
        states = pool.save()
        for _ in range(5):
            observation, *_, info = pool.step([0, 0])
            kept.append((observation, info["state"]))
        pool.restore(states)
        pool.step([0, 0])
    for i, arrays in enumerate(kept):
        for array in arrays:
            assert np.asarray(array).tolist() == [[i, i], [i, i]]


def test_a_world_that_calls_back_to_the_host_and_fails_there() -> None:
    calls: list[int] = []

    def on_host(count: Any) -> Any:
        calls.append(int(count))
        if count >= 2:
            raise ValueError("the host says no")
        return np.float32(count)

    def step(key: Any, state: Any, action: Any) -> Moved:
        form = jax.ShapeDtypeStruct((), jnp.float32)
        told = jax.pure_callback(on_host, form, state, vmap_method="sequential")
        return Moved(state + 1, jnp.stack([told, told]), 0.0, False, False)

    pool = stepmill.make(world_of(lambda key: Begun(0, jnp.zeros(2)), step), num_envs=2)
    pool.reset()
    assert [pool.step([0, 0])[0][:, 0].tolist() for _ in range(2)] == [[0, 0], [1, 1]]
    with pytest.raises(Exception, match="the host says no"):
        pool.step([0, 0])
    for call in (lambda: pool.step([0, 0]), pool.reset, pool.stats, pool.check, pool.save):
        with pytest.raises(errors.StepmillError):
            call()
    pool.close()
    assert pool.closed


def boom(*_: Any) -> Any:
    raise ArithmeticError("no such step")


def plain_step(key: Any, state: Any, action: Any) -> Moved:
    return Moved(state, jnp.zeros(2), 0.0, False, False)


def zeros(key: Any) -> Begun:
    return Begun(0, jnp.zeros(2))


def moved(**others: Any) -> Callable[..., Any]:
    return lambda key, state, action: plain_step(key, state, action)._replace(**others)


BROKEN = {
    "step raises": (zeros, boom, ArithmeticError, "no such step"),
    "reset raises": (boom, plain_step, ArithmeticError, "no such step"),
    "a tuple": (lambda key: (0, jnp.zeros(2)), plain_step, errors.ConfigError, "expected a Begun, got a tuple"),
    "an array": (lambda key: 3, plain_step, errors.ConfigError, "reset: expected a Begun, got an array"),
    "state form": (lambda key: Begun({"a": 0}, jnp.zeros(2)), moved(state=0), errors.ConfigError, "states of the same"),
    "observation shape": (zeros, moved(observation=jnp.zeros(3)), errors.ConfigError, r"shapes \(2,\), got \(3,\)"),
    "observation form": (lambda key: Begun(0, {"a": jnp.zeros(2)}), plain_step, errors.ConfigError, "form of their"),
    "reward": (zeros, moved(reward=jnp.ones(1)), errors.ConfigError, r"'reward': \(1,\)"),
    "flag": (zeros, moved(truncated=jnp.zeros(2, bool)), errors.ConfigError, r"'truncated': \(2,\)"),
    "text in an info": (zeros, moved(info={"text": "x"}), TypeError, "text"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_world_that_cannot_be_run_is_refused_when_the_pool_is_made(name: str) -> None:
    reset, step, error, words = BROKEN[name]
    with pytest.raises(error, match=words):
        stepmill.make(world_of(reset, step), num_envs=2)


def test_keys_of_another_kind_are_refused() -> None:
    with (
        jax.default_prng_impl("rbg"),
        pytest.raises(errors.UnsupportedError, match="jax_default_prng_impl says rbg"),
    ):
        stepmill.make(counting_world(), num_envs=2)
