"""Brax's envs beside its own functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("brax")

import numpy as np  # noqa: E402

from stepmill.errors import ConfigError, UnknownConfigError, UnknownEnvError, UnsupportedError  # noqa: E402
from stepmill.zoo.worlds import brax as adapter  # noqa: E402
from stepmill.zoo.worlds.brax import envs, names, training, world_of  # noqa: E402
from support.worlds import compare_with_a_loop, follow  # noqa: E402

# Each takes many seconds to compile.
QUICK = ("fast", "inverted_pendulum")


def oracle(env: Any) -> tuple[Any, Any]:
    def reset(key: Any) -> tuple[Any, Any]:
        with adapter._quiet():
            state = env.reset(key)
        return state, state.obs

    def step(key: Any, state: Any, action: Any) -> Any:
        with adapter._quiet():
            state = env.step(state, action)
        return state, state.obs, state.reward, state.done == 1, jax.numpy.zeros((), bool), state.metrics

    return reset, step


def make(name: str, **arguments: Any) -> Any:
    with adapter._quiet():
        return envs.get_environment(name, **arguments)


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in names()]
)
def test_equal_to_the_suite(name: str) -> None:
    ends = follow(world_of(name, {}), *oracle(make(name)), steps=40)
    assert ends["terminated"] or name not in ("inverted_pendulum", "hopper", "walker2d")


@pytest.mark.parametrize(
    "name", ["fast", *(pytest.param(one, marks=pytest.mark.slow) for one in ("inverted_pendulum", "reacher"))]
)
def test_beside_a_plain_loop(name: str) -> None:
    compare_with_a_loop(f"brax:{name}", *oracle(make(name)))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["spring", "positional", "mjx"])
def test_other_backends(backend: str) -> None:
    follow(world_of("reacher", {"backend": backend}), *oracle(make("reacher", backend=backend)), steps=10)


def test_arguments() -> None:
    """Also those that a class passes on to its base, with the values that the env has."""
    world = world_of("inverted_pendulum", {})
    assert (world.config, world.max_episode_steps) == ({"backend": "generalized", "n_frames": 2, "debug": False}, 1000)
    assert world_of("inverted_pendulum", {"n_frames": 1}).config["n_frames"] == 1
    with pytest.raises(UnknownConfigError, match="no config key 'bakend', did you mean 'backend'"):
        world_of("ant", {"bakend": "mjx"})


def test_unknown_names() -> None:
    with pytest.raises(UnknownEnvError, match=r"unknown env id 'brax:half_cheetah', did you mean brax:halfcheetah\?"):
        world_of("half_cheetah", {})


def test_observations_in_a_dict() -> None:
    world = world_of("fast", {"obs_mode": "dict_state", "asymmetric_obs": True})
    assert {key: one.shape for key, one in world.observation_space.items()} == {"state": (2,), "privileged_state": (4,)}
    follow(world, *oracle(make("fast", obs_mode="dict_state", asymmetric_obs=True)), steps=5)


def test_env_objects() -> None:
    env = make("fast")
    assert world_of(env, {}).id == "brax:Fast"
    assert world_of(envs.Wrapper(env), {}).id == "brax:Wrapper"
    with pytest.raises(UnknownConfigError, match="Known keys: none"):
        world_of(env, {"debug": True})
    for wrapped in (training.AutoResetWrapper(env), envs.Wrapper(training.EpisodeWrapper(env, 10, 1))):
        with pytest.raises(ConfigError, match=r"got an env in Brax's (AutoReset|Episode)Wrapper: pass it without"):
            world_of(wrapped, {})


def test_pictures() -> None:
    """MuJoCo's, where it can draw."""
    world = world_of("inverted_pendulum", {})
    assert world.draw is not None
    try:
        picture = world.draw(SimpleNamespace(pipeline_state=SimpleNamespace(q=np.zeros(2), qd=np.zeros(2))))
    except UnsupportedError as error:
        pytest.skip(str(error))
    assert (picture.shape, picture.dtype) == ((240, 320, 3), np.uint8)
    assert picture.std() > 10
    assert world_of("fast", {}).draw is None


@pytest.mark.skipif("swimmer" in names(), reason="this JAX has what Brax needs")
def test_what_does_not_work_with_this_jax() -> None:
    with pytest.raises(UnsupportedError, match=r"brax:swimmer does not work with JAX 0\..*: pip install 'jax<0.10'"):
        world_of("swimmer", {})
