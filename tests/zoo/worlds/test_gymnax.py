"""Gymnax's envs beside its own functions."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")
gymnax = pytest.importorskip("gymnax")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from gymnax.environments.environment import Environment  # noqa: E402

import stepmill  # noqa: E402
from stepmill.errors import ConfigError, ResourceError, UnknownConfigError, UnknownEnvError  # noqa: E402
from stepmill.zoo.worlds.gymnax import names, world_of  # noqa: E402
from support.worlds import check_equal, compare_with_a_loop, follow  # noqa: E402

LIMIT = 30
SLOW = {  # to compile
    *("Freeway-MinAtar", "Seaquest-MinAtar", "Asterix-MinAtar", "SpaceInvaders-MinAtar"),
    *("PointRobot-misc", "Swimmer-misc", "Reacher-misc", "UmbrellaChain-bsuite"),
}


def oracle(env: Any, params: Any) -> tuple[Any, Any]:
    """Gymnax's functions, jitted as its own ``reset`` and ``step`` are, which give the params as arguments."""

    def reset(key: Any) -> tuple[Any, Any]:
        observation, state = env.reset(key, params)
        return state, observation

    @jax.jit
    def stepped(key: Any, state: Any, action: Any, params: Any) -> Any:
        return env.step_env(key, state, action, params)

    def step(key: Any, state: Any, action: Any) -> Any:
        observation, state, reward, terminated, info = stepped(key, state, action, params)
        return state, observation, reward, terminated, jax.numpy.zeros((), bool), info

    return reset, step


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in names()])
def test_equal_to_the_suite(name: str) -> None:
    env, params = gymnax.make(name)
    follow(world_of(name, {}), *oracle(env, params))


@pytest.mark.parametrize("name", ["CartPole-v1", "Breakout-MinAtar", "FourRooms-misc"])
def test_equal_to_the_autoreset_of_the_suite(name: str) -> None:
    """Our step and reset, with the keys that Gymnax's ``step`` splits, and our limit."""
    env, params = gymnax.make(name)
    params = params.replace(max_steps_in_episode=LIMIT)
    world = world_of(name, {"max_steps_in_episode": LIMIT})
    assert world.max_episode_steps == LIMIT

    def ours(key: Any, state: Any, action: Any, elapsed: Any) -> Any:
        step_key, reset_key = jax.random.split(key)
        moved, begun = world.step(step_key, state, action), world.reset(reset_key)
        truncated = elapsed + 1 >= LIMIT
        over = moved.terminated | truncated
        pair = (begun.observation, begun.state), (moved.observation, moved.state)
        observation, state = jax.tree.map(lambda a, b: jax.lax.select(over, a, b), *pair)
        return observation, state, moved.reward, moved.terminated, truncated, jax.numpy.where(over, 0, elapsed + 1)

    theirs = jax.jit(lambda key, state, action: env.step(key, state, action, params))  # as in a training
    key = jax.random.PRNGKey(3)
    state = env.reset(key, params)[1]
    own, elapsed = jax.jit(world.reset)(key).state, jax.numpy.zeros((), int)
    world.action_space.seed(0)
    ended = 0
    for i in range(3 * LIMIT):
        key, action = jax.random.PRNGKey(i), jax.numpy.asarray(world.action_space.sample())
        *expected, _ = theirs(key, state, action)
        *got, elapsed = jax.jit(ours)(key, own, action, elapsed)
        check_equal(tuple(got), tuple(expected))
        own, state = got[1], expected[1]
        ended += int(got[3] | got[4])
    assert ended > 1


@pytest.mark.parametrize(
    "name",
    ["CartPole-v1", *(pytest.param(one, marks=pytest.mark.slow) for one in ("Catch-bsuite", "Breakout-MinAtar"))],
)
def test_beside_a_plain_loop(name: str) -> None:
    assert compare_with_a_loop(f"gymnax:{name}", *oracle(*gymnax.make(name))) > 0


def test_arguments_and_params() -> None:
    """Both are keys of the configuration, and are listed with their defaults."""
    world = world_of("DeepSea-bsuite", {"size": 5, "unscaled_move_cost": 0.5})
    assert world.observation_space.shape == (5, 5)
    assert world.max_episode_steps == world.config["max_steps_in_episode"] == 5
    assert (world.config["unscaled_move_cost"], world.config["randomize_actions"]) == (0.5, True)
    with pytest.raises(UnknownConfigError, match="no config key 'gravty', did you mean 'gravity'"):
        world_of("CartPole-v1", {"gravty": 1.0})
    chain = world_of("DiscountingChain-bsuite", {"reward_timestep": [1, 2, 3, 4, 5]})
    state = chain.reset(jax.random.PRNGKey(0)).state
    assert float(chain.step(jax.random.PRNGKey(0), state, 0).reward) >= 1  # after 1 step, not after 100


def test_unknown_names() -> None:
    with pytest.raises(UnknownEnvError, match=r"unknown env id 'gymnax:Cartpole-v0', did you mean gymnax:CartPole-v1"):
        world_of("Cartpole-v0", {})


def test_an_env_of_ones_own_with_an_end_of_its_own() -> None:
    cartpole = type(gymnax.make("CartPole-v1")[0])

    class Brief(cartpole):  # type: ignore[misc, valid-type]
        def is_truncated(self, state: Any, params: Any) -> Any:
            return state.time >= 7

    env = Brief()
    assert isinstance(env, Environment)
    world = world_of(env, {"gravity": 1.0})
    assert (world.id, world.max_episode_steps, world.config["gravity"]) == ("gymnax:Brief", None, 1.0)
    state = world.reset(jax.random.PRNGKey(0)).state
    flags = []
    for _ in range(7):
        moved = world.step(jax.random.PRNGKey(0), state, 0)
        state = moved.state
        flags.append(bool(moved.truncated))
    assert flags == [False] * 6 + [True]


@pytest.mark.parametrize(
    "name",
    [
        "CartPole-v1",
        "MetaMaze-misc",
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("Acrobot-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Breakout-MinAtar")
        ),
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("Catch-bsuite", "Pong-misc", "PointRobot-misc")),
        pytest.param("FourRooms-misc", marks=pytest.mark.slow),
    ],
)
def test_pictures(name: str) -> None:
    """Those of Gymnax's Visualizer; its figures do not stay."""
    world = world_of(name, {})
    assert world.draw is not None
    state = jax.tree.map(np.asarray, jax.jit(world.reset)(jax.random.PRNGKey(0)).state)
    before = plt.get_fignums()
    picture = world.draw(state)
    assert (picture.shape, picture.dtype) == ((500, 600, 3), np.uint8)
    assert picture.std() > 10
    assert plt.get_fignums() == before


def test_no_pictures() -> None:
    assert world_of("DeepSea-bsuite", {}).draw is None


def test_what_it_downloads_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> Any:
        raise OSError("no route to the host")

    monkeypatch.setitem(gymnax.registration._registry, "MNISTBandit-bsuite", make)
    with pytest.raises(ResourceError, match="gymnax:MNISTBandit-bsuite downloads data when it is made, which failed"):
        world_of("MNISTBandit-bsuite", {})


def test_a_value_that_an_env_cannot_take() -> None:
    with pytest.raises(
        ConfigError, match=r"gymnax:CartPole-v1 cannot be made with \{'gravity': 'x'\}: TypeError"
    ) as told:
        stepmill.make("gymnax:CartPole-v1", gravity="x")
    assert isinstance(told.value.__cause__, TypeError)
