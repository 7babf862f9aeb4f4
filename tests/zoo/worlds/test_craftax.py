"""Craftax's envs beside its own functions."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("craftax")

import numpy as np  # noqa: E402
from craftax.craftax_env import make_craftax_env_from_name  # noqa: E402

from stepmill.errors import UnknownConfigError, UnknownEnvError  # noqa: E402
from stepmill.zoo.worlds.craftax import names, world_of  # noqa: E402
from support.worlds import compare_with_a_loop, follow  # noqa: E402

CLASSIC = "Craftax-Classic-Symbolic-v1"


def oracle(name: str) -> tuple[Any, Any]:
    env = make_craftax_env_from_name(name, auto_reset=False)
    params = env.default_params

    def reset(key: Any) -> tuple[Any, Any]:
        observation, state = env.reset(key, params)
        return state, observation

    def step(key: Any, state: Any, action: Any) -> Any:
        observation, state, reward, done, info = env.step(key, state, action, params)
        told = {"achievements": state.achievements, "discount": info["discount"]}
        return state, observation, reward, done, jax.numpy.zeros((), bool), told

    return reset, step


# They take minutes to compile, and the first pixels too, in which Craftax makes its pictures ready.
@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_equal_to_the_suite(name: str) -> None:
    follow(world_of(name, {}), *oracle(name))


@pytest.mark.slow
def test_beside_a_plain_loop() -> None:
    compare_with_a_loop(f"craftax:{CLASSIC}", *oracle(CLASSIC))


def test_time_limit_and_ends() -> None:
    """Craftax's limit is left to the pool; who has no health is terminated, with discount 0."""
    world = world_of(CLASSIC, {"max_timesteps": 2})
    assert (world.max_episode_steps, world.config["max_timesteps"]) == (2, 2)
    state, step = jax.jit(world.reset)(jax.random.PRNGKey(0)).state, jax.jit(world.step)
    for _ in range(3):
        moved = step(jax.random.PRNGKey(0), state, 0)
        state = moved.state
        assert not moved.terminated
    moved = step(jax.random.PRNGKey(0), state.replace(player_health=-9), 0)
    assert (bool(moved.terminated), float(moved.info["discount"])) == (True, 0)


def test_params_and_static_params() -> None:
    world = world_of(CLASSIC, {"map_size": (32, 32), "day_length": 100})
    state = jax.eval_shape(world.reset, jax.random.PRNGKey(0)).state
    assert state.map.shape == (32, 32)
    assert (world.config["day_length"], world.config["max_cows"]) == (100, 3)
    with pytest.raises(UnknownConfigError, match="no config key 'day_lenght', did you mean 'day_length'"):
        world_of(CLASSIC, {"day_lenght": 100})
    with pytest.raises(
        UnknownEnvError, match="unknown env id 'craftax:Craftax-Symbolic', did you mean craftax:Craftax-S"
    ):
        world_of("Craftax-Symbolic", {})


def test_env_objects() -> None:
    """With autoreset or without: its ``step`` is not called."""
    env = make_craftax_env_from_name(CLASSIC, auto_reset=True)
    world = world_of(env, {"max_timesteps": 7})
    assert (world.id, world.max_episode_steps) == ("craftax:CraftaxClassicSymbolicEnv", 7)
    with pytest.raises(UnknownConfigError, match="no config key 'map_size'"):
        world_of(env, {"map_size": (32, 32)})


@pytest.mark.slow
@pytest.mark.parametrize("name", [CLASSIC, "Craftax-Pixels-v1"])
def test_pictures(name: str) -> None:
    world = world_of(name, {})
    state = jax.tree.map(np.asarray, jax.jit(world.reset)(jax.random.PRNGKey(0)).state)
    assert world.draw is not None
    picture = world.draw(state)
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)
    assert picture.std() > 10
