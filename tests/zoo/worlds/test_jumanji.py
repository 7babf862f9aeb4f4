"""Jumanji's envs beside its own functions."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

jax = pytest.importorskip("jax")
jumanji = pytest.importorskip("jumanji")

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402
from gymnasium import spaces  # noqa: E402
from jumanji.wrappers import MultiToSingleWrapper  # noqa: E402

from stepmill.errors import ResourceError, UnknownConfigError, UnknownEnvError, UnsupportedError  # noqa: E402
from stepmill.zoo.worlds.jumanji import names, world_of  # noqa: E402
from support.worlds import compare_with_a_loop, follow  # noqa: E402

QUICK = {"Snake-v1", "Maze-v0", "Knapsack-v1"}


def oracle(env: Any) -> tuple[Any, Any]:
    """Jumanji's functions, with observations as the dicts that we make of them."""

    def reset(key: Any) -> tuple[Any, Any]:
        state, timestep = env.reset(key)
        return state, as_dict(timestep.observation)

    def step(key: Any, state: Any, action: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)  # BinPack's
            state, timestep = env.step(state, action)
        ends, goes_on = timestep.last(), timestep.discount > 0
        flags = ends & ~goes_on, ends & goes_on
        info = dict(timestep.extras, discount=timestep.discount)
        return state, as_dict(timestep.observation), timestep.reward, *flags, info

    return reset, step


def as_dict(value: Any) -> Any:
    fields = getattr(value, "_fields", None) or getattr(value, "__dataclass_fields__", None)
    return value if fields is None else {name: as_dict(getattr(value, name)) for name in fields}


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in names()]
)
def test_equal_to_the_suite(name: str) -> None:
    follow(world_of(name, {}), *oracle(jumanji.make(name)))


@pytest.mark.parametrize(
    "name", ["Knapsack-v1", *(pytest.param(one, marks=pytest.mark.slow) for one in ("Snake-v1", "TSP-v1", "Tetris-v0"))]
)
def test_beside_a_plain_loop(name: str) -> None:
    assert compare_with_a_loop(f"jumanji:{name}", *oracle(jumanji.make(name))) > 0


def test_spaces() -> None:
    """Nested observations are nested dicts; each kind of action has its space."""
    maze = world_of("Maze-v0", {})
    assert isinstance(maze.observation_space, spaces.Dict)
    assert maze.observation_space["agent_position"]["row"] == spaces.Box(0, 9, (), "int32")
    assert maze.action_space == spaces.Discrete(4)
    assert world_of("Tetris-v0", {}).action_space == spaces.MultiDiscrete([4, 10])
    assert world_of("MultiCVRP-v0", {}).action_space == spaces.Box(0, 21, (2,), "int16")


def test_the_time_limit_is_the_suites_own() -> None:
    """It ends episodes as Jumanji does, with discount 0."""
    world = world_of("Maze-v0", {"time_limit": 5})
    assert (world.max_episode_steps, world.config["time_limit"]) == (None, 5)
    state = world.reset(jax.random.PRNGKey(0)).state
    ends = []
    for _ in range(5):
        moved = world.step(None, state, 0)
        state = moved.state
        ends.append((bool(moved.terminated), bool(moved.truncated), float(moved.info["discount"])))
    assert ends == [(False, False, 1)] * 4 + [(True, False, 0)]


def test_a_last_step_with_a_discount_is_truncated() -> None:
    """In LevelBasedForaging, made one agent's by Jumanji's own wrapper."""
    env = MultiToSingleWrapper(jumanji.make("LevelBasedForaging-v0", time_limit=3))
    world = world_of(env, {})
    state, step = jax.jit(world.reset)(jax.random.PRNGKey(0)).state, jax.jit(world.step)
    for _ in range(3):
        moved = step(None, state, jax.numpy.zeros(2, int))
        state = moved.state
    assert (bool(moved.terminated), bool(moved.truncated)) == (False, True)


def test_many_agents_are_refused() -> None:
    for name in ("Connector-v3", "SearchAndRescue-v0"):
        with pytest.raises(UnsupportedError, match=f"jumanji:{name} rewards each of its agents, and an env of a pool"):
            world_of(name, {})
    world = world_of(MultiToSingleWrapper(jumanji.make("Connector-v3")), {})
    assert world.id == "jumanji:MultiToSingleWrapper"


def test_errors() -> None:
    with pytest.raises(UnknownEnvError, match="unknown env id 'jumanji:snake-v0', did you mean jumanji:Snake-v1"):
        world_of("snake-v0", {})
    with pytest.raises(UnknownConfigError, match="no config key 'num_row', did you mean 'num_rows'"):
        world_of("Snake-v1", {"num_row": 5})


@pytest.mark.parametrize(
    "name", [one if one in ("Snake-v1", "Maze-v0") else pytest.param(one, marks=pytest.mark.slow) for one in names()]
)
def test_pictures(name: str) -> None:
    """The viewer's, without a window, and without figures that stay."""
    world = world_of(name, {})
    assert world.draw is not None
    state = jax.tree.map(np.asarray, jax.jit(world.reset)(jax.random.PRNGKey(0)).state)
    before = plt.get_fignums(), plt.isinteractive()
    picture = world.draw(state)
    assert (picture.dtype, picture.ndim, picture.shape[2]) == (np.uint8, 3, 3)
    assert picture.std() > 10
    np.testing.assert_array_equal(world.draw(state), picture)
    assert (plt.get_fignums(), plt.isinteractive()) == before


def test_what_it_downloads_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route to the hub")

    monkeypatch.setattr(jumanji, "make", make)
    with pytest.raises(ResourceError, match=r"jumanji:Sokoban-v0 downloads data when it is made, which failed: Connec"):
        world_of("Sokoban-v0", {})
    with pytest.raises(ConnectionError):
        world_of("Snake-v1", {})
