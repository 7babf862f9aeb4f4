"""Moving-v0 and Sliding-v0 are native, and equal to the Python envs bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, EnvError
from stepmill.zoo.hybrid import MovingEnv, SlidingEnv
from stepmill.zoo.hybrid.world import ACCELERATE, BRAKE, TURN

TWINS = {"Moving-v0": MovingEnv, "Sliding-v0": SlidingEnv}
MODES = ["next_step", "same_step", "disabled"]
ENVS = 6


def driven(observations: np.ndarray, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Drives two envs of three to their targets, so that episodes end in every way. Some numbers exceed bounds."""
    x, y, vx, vy, sine, cosine, target_x, target_y, distance, inside, _ = observations.astype(np.float64).T
    bearing = np.arctan2(target_y - y, target_x - x)
    error = np.angle(np.exp(1j * (bearing - np.arctan2(sine, cosine))))
    towards = vx * np.cos(bearing) + vy * np.sin(bearing)
    astray = np.abs(vy * np.cos(bearing) - vx * np.sin(bearing))
    too_fast = (towards > 0) & (towards**2 / 4 + 0.1 * towards >= distance)
    kind = np.full(len(x), ACCELERATE)
    kind[np.abs(error) > 0.05] = TURN
    kind[(inside > 0) | too_fast | (towards < -1e-6) | (astray > 0.08)] = BRAKE
    wanders = random.random(len(x)) < np.where(np.arange(len(x)) % 3 == 0, 0.9, 0.1)
    kind[wanders] = random.integers(0, 3, wanders.sum())
    power = random.choice([0.3, 1.0, 7.0, -2.0, -0.0], len(x), p=[0.2, 0.5, 0.1, 0.1, 0.1])
    angle = np.where(wanders, random.uniform(-3, 3, len(x)), error / (np.pi / 2))
    return {"action_type": kind, "action_args": np.stack([power, angle], axis=1).astype(np.float32)}


def in_form(form: str, actions: dict[str, np.ndarray]) -> Any:
    arguments = actions["action_args"]
    return actions if form == "dict" else (actions["action_type"], arguments[:, :1], arguments[:, 1:])


def same(ours: Any, theirs: Any) -> None:
    """Equal to the last bit, in the same types."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, np.ndarray) and theirs.dtype != object:
        assert (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes())
    else:
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            if one is not None or other is not None:
                same(np.asarray(one) if not isinstance(one, dict) else one, other)


@pytest.fixture
def pools() -> Iterator[Any]:
    opened = []

    def make(id: str, backend: str, **arguments: Any) -> tuple[Any, Any]:
        native = stepmill.make(id, num_envs=ENVS, seed=9, backend=backend, **arguments)
        twin = stepmill.make(TWINS[id], num_envs=ENVS, seed=9, backend="inline", **arguments)
        opened.extend([native, twin])
        assert (native.is_native, twin.is_native) == (True, False)
        return native, twin

    yield make
    for pool in opened:
        pool.close()


@pytest.mark.parametrize(("form", "backend"), [("tuple", "thread"), ("dict", "process"), ("dict", "inline")])
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("id", TWINS)
def test_a_native_pool_plays_the_episodes_of_the_python_env(
    pools: Any, id: str, autoreset: str, form: str, backend: str
) -> None:
    native, twin = pools(id, backend, autoreset=autoreset, action_form=form, time_limit=40, target_radius=0.2)
    assert native.single_observation_space == twin.single_observation_space
    assert native.single_action_space == twin.single_action_space
    random = np.random.default_rng(1)
    ours, theirs = native.reset(), twin.reset()
    successes = ends = 0
    for step in range(200):
        same(ours, theirs)
        actions = in_form(form, driven(theirs[0], random))
        ours, theirs = native.step(actions), twin.step(actions)
        told = theirs[4]["final_info"] if "final_info" in theirs[4] else theirs[4]
        successes += int(told["is_success"].sum())
        ended = theirs[2] | theirs[3]
        ends += int(ended.sum())
        if autoreset == "disabled" and ended.any():
            same(ours, theirs)
            ours, theirs = (pool.reset(options={"reset_mask": ended}) for pool in (native, twin))
        elif step % 67 == 50:
            same(ours, theirs)
            ours, theirs = (pool.reset(seed=step) for pool in (native, twin))
    assert successes > 5
    assert ends > successes, "and some failed, or were too slow"


@pytest.mark.parametrize("arguments", [{}, {"max_episode_steps": 9, "penalty": 0.3}, {"batch_size": 3}], ids=str)
@pytest.mark.parametrize("id", TWINS)
def test_verify_compares_them_with_our_python_envs(id: str, arguments: dict[str, Any]) -> None:
    result = stepmill.verify(id, steps=2_000, **arguments)
    assert result.equal, result
    assert result.episodes > 0


@pytest.mark.parametrize("backend", ["thread", "process"])
@pytest.mark.parametrize("id", TWINS)
def test_pictures_are_those_of_the_python_env(pools: Any, id: str, backend: str) -> None:
    native, twin = pools(id, backend, render_mode="rgb_array", time_limit=70, action_form="dict")
    assert native.metadata["render_modes"] == twin.metadata["render_modes"] == ["rgb_array"]
    random = np.random.default_rng(2)
    observation, _ = native.reset()
    twin.reset()
    for step in range(75):  # longer than the trail, and past the end
        if step % 15 == 0 or step > 66:
            for ours, theirs in zip(native.render([1, 0]), twin.render([1, 0]), strict=True):
                assert np.array_equal(ours, theirs)
        actions = driven(observation, random)
        observation = native.step(actions)[0]
        twin.step(actions)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"render_mode": "pixels"}, "render_mode: expected None or a mode of Moving-v0"),
        ({"action_form": "list"}, "action_form: expected one of 'tuple', 'dict', got 'list'"),
        ({"time_limit": 0}, "time_limit: expected a whole number >= 1, got 0"),
        ({"time_limit": 2.5}, "time_limit': expected a whole number, got 2.5"),
        ({"target_radius": 0.6}, "target_radius: expected a finite number >= 0.01 and <= 0.5, got 0.6"),
        ({"penalty": "much"}, "penalty': expected a number, got 'much'"),
        ({"penalty": float("nan")}, "penalty: expected a finite number"),
        ({"reward": 3}, "no config key 'reward'"),
    ],
)
def test_a_bad_argument_is_an_error(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        stepmill.make("Moving-v0", backend="thread", **arguments)


def test_an_infinite_power_fails_in_that_env_only() -> None:
    with stepmill.make("Moving-v0", num_envs=3, action_form="dict") as pool:
        assert pool.backend == "thread"
        pool.reset()
        arguments = np.zeros((3, 2), np.float32)
        arguments[1, 0] = np.inf
        with pytest.raises(EnvError, match="two finite numbers") as caught:
            pool.step({"action_type": np.zeros(3, np.int64), "action_args": arguments})
        assert caught.value.batch[4]["abnormal"].tolist() == [False, True, False]
        arguments[1, 0] = np.nan
        with pytest.raises(stepmill.errors.ActionError, match="nan"):
            pool.step({"action_type": np.zeros(3, np.int64), "action_args": arguments})


def test_beside_other_envs_the_python_ones_run() -> None:
    with stepmill.make(["Moving-v0", "Sliding-v0"], num_envs=2, backend="inline") as pool:
        assert not pool.is_native
        with stepmill.make("Sliding-v0", num_envs=2) as native:
            assert native.is_native
            assert np.array_equal(pool.reset()[0][1], native.reset()[0][1])
