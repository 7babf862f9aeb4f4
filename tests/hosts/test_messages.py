"""Common mistakes get the message that mends them, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, EnvError, MissingConfigError, UnknownConfigError
from support.envs.adapted import Obedient

BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])
ZERO = np.zeros(1, np.float32)


class WithoutAny(Obedient):
    def reset(self) -> Any:  # type: ignore[override]
        raise AssertionError("it is not called")


class WithoutOptions(Obedient):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        raise AssertionError("it is not called")


class Raises(Obedient):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise TypeError("of my own")


# ---- arguments of make ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["CartPole-v1", "gymnasium:CartPole-v1", Obedient, lambda size=3: Obedient()])
@pytest.mark.parametrize("make", [stepmill.make, stepmill.make_gym, stepmill.make_dm, stepmill.make_spec])
def test_a_misspelt_argument_is_asked_about(make: Callable[..., Any], task: Any) -> None:
    with pytest.raises(UnknownConfigError, match=r"has no config key 'num_env', .*: did you mean num_envs\?"):
        make(task, num_env=3)
    with pytest.raises(UnknownConfigError, match=r"did you mean backend\?"):
        make(task, backends="inline")


def test_a_key_of_the_env_comes_first() -> None:
    with pytest.raises(UnknownConfigError, match=r"'sutton_barto_rewards', did you mean 'sutton_barto_reward'\?"):
        stepmill.make("CartPole-v1", sutton_barto_rewards=True)
    with pytest.raises(UnknownConfigError, match=r"no config key 'zzz'\. Known keys: sutton_barto_reward"):
        stepmill.make("CartPole-v1", zzz=True)


def test_an_argument_of_make_among_those_of_an_env() -> None:
    with pytest.raises(UnknownConfigError, match="'num_envs': it is an argument of make, for all envs"):
        stepmill.make("CartPole-v1", env_config=[{"num_envs": 3}])


# ---- results of the wrong form -------------------------------------------------------------------

STEP = r"step: expected \(observation, reward, terminated, truncated, info\), got "


@BACKENDS
@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ((ZERO, 0.0, False, {}), STEP + r"a tuple of 4\. Old Gym's step .*terminated .*and truncated.*shimmy"),
        ((ZERO, 0.0, False, 3), STEP + r"a tuple of 4$"),
        ((ZERO, 0.0, False), STEP + r"a tuple of 3$"),
        ([ZERO, 0.0, False, False, {}], STEP + r"a list of 5$"),
        (3, STEP + r"3$"),
        (ZERO, STEP + r"an array of shape \(1,\)"),
    ],
)
def test_a_wrong_step(backend: str, returned: Any, says: str) -> None:
    with stepmill.make(lambda: Obedient(at_step=returned), backend=backend) as pool:
        pool.reset()
        with pytest.raises(EnvError, match=says):
            pool.step([0])


@BACKENDS
@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (ZERO, r"reset: expected \(observation, info\), got an array .*Old Gym's reset returned the observation alone"),
        ((ZERO, {}, 0), r"reset: expected \(observation, info\), got a tuple of 3$"),
    ],
)
def test_a_wrong_reset(backend: str, returned: Any, says: str) -> None:
    with (
        stepmill.make(lambda: Obedient(at_reset=returned), backend=backend) as pool,
        pytest.raises(EnvError, match=says),
    ):
        pool.reset()


@BACKENDS
@pytest.mark.parametrize(
    ("env", "says"),
    [
        (WithoutAny, r"WithoutAny\.reset: expected .*seed=None, options=None.*, got one without 'seed' and 'options'"),
        (WithoutOptions, r"WithoutOptions\.reset: expected .*, got one without 'options'"),
        (
            lambda: gymnasium.wrappers.TimeLimit(WithoutOptions(), 3),
            r"WithoutOptions\.reset: expected .*, got one without 'options'",
        ),
        (Raises, r"TypeError: of my own$"),
    ],
)
def test_a_reset_that_does_not_take_the_arguments(backend: str, env: Any, says: str) -> None:
    with stepmill.make(env, backend=backend) as pool, pytest.raises(EnvError, match=says) as caught:
        pool.reset()
    assert isinstance(caught.value.__cause__, TypeError)


class Sized(Obedient):
    def __init__(self, size: int, *, speed: float, colour: str = "red") -> None:
        super().__init__()


class Anything(Obedient):
    def __init__(self, **config: Any) -> None:
        super().__init__(**config)


@BACKENDS
def test_a_constructor_that_lacks_an_argument(backend: str) -> None:
    with pytest.raises(
        MissingConfigError, match=r"Sized needs size and speed, .*: make\(\.\.\., size=\.\.\., speed=\.\.\.\)"
    ):
        stepmill.make(Sized, backend=backend)
    with pytest.raises(
        MissingConfigError, match=r"Sized needs speed, .*make\(\.\.\., speed=.*TypeError: .*missing 1 required"
    ):
        stepmill.make(Sized, size=3, backend=backend)


def test_an_id_whose_constructor_lacks_an_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.envs.registration.EnvSpec("Sized-v0", entry_point=Sized, kwargs={"speed": 1.0})
    monkeypatch.setitem(gymnasium.registry, "Sized-v0", spec)
    with pytest.raises(MissingConfigError, match=r"Sized-v0 needs size, .*: make\(\.\.\., size=\.\.\.\)"):
        stepmill.make("Sized-v0", backend="inline")


@BACKENDS
def test_wrappers_as_an_argument(backend: str) -> None:
    says = r".*: pass a function that makes the env and wraps it, such as make\(lambda: "
    for task in ("CartPole-v1", Obedient):
        with pytest.raises(UnknownConfigError, match=f"has no config key 'wrappers'{says}"):
            stepmill.make(task, backend=backend, wrappers=[gymnasium.Wrapper])
    with pytest.raises(ConfigError, match=f"Anything failed with TypeError: {says}"):
        stepmill.make(Anything, backend=backend, wrapper_class=gymnasium.Wrapper)
