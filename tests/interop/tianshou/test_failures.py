"""Failed resets and Ctrl-C: a collector never takes a step from one episode into another for a transition."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stepmill import errors
from stepmill.interop.tianshou import PoolVectorEnv, make_vector_env
from support.sb3_envs import CRASH, InterruptingEnv

pytestmark = pytest.mark.usefixtures("server", "deadline")

BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])
GO = np.zeros(3, int)
BAD = np.full(3, CRASH)


@pytest.fixture
def make() -> Iterator[Callable[..., PoolVectorEnv]]:
    made: list[PoolVectorEnv] = []

    def build(backend: str = "process", **settings: Any) -> PoolVectorEnv:
        made.append(make_vector_env(InterruptingEnv, num_envs=3, seed=3, backend=backend, **settings))
        made[-1].reset()
        return made[-1]

    yield build
    for env in made:
        env.close()


def counts(obs: Any) -> list[int]:
    return [int(one["count"]) for one in obs]


def interrupt(patch: pytest.MonkeyPatch, env: PoolVectorEnv, name: str, queue: str) -> None:
    """Ctrl-C in a call of the pool, once its envs are at work."""

    def interrupted(*args: Any, **kwargs: Any) -> None:
        getattr(env.pool, queue)(*args, **kwargs)
        raise KeyboardInterrupt

    patch.setattr(env.pool, name, interrupted)


def raise_interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


# ---- failed resets -------------------------------------------------------------------------------


@BACKENDS
def test_a_failed_reset_is_done_again(make: Any, backend: str) -> None:
    env = make(backend, on_error="restart")
    env.set_env_attr("crashes", 2, [1])
    obs, infos = env.reset([2, 1], seed=7, options={"x": 1})
    assert counts(obs) == [0, 0]
    assert [info["env_id"] for info in infos] == [2, 1]
    assert [info["given"] for info in infos] == ["{'x': 1}"] * 2
    expected, _ = env.reset([2, 1], seed=7)
    for one, other in zip(obs, expected, strict=True):
        np.testing.assert_array_equal(one["place"], other["place"])
    obs, reward, *_ = env.step(GO)
    assert counts(obs) == [1, 1, 1]
    np.testing.assert_allclose(reward, 1 / 3)


def test_a_reset_that_fails_too_often_raises(make: Any) -> None:
    env = make("inline", on_error="restart", max_restarts=2)
    env.set_env_attr("crashes", 2, [1])
    with pytest.raises(errors.EnvError, match="no reset today"):
        env.reset()


# ---- Ctrl-C --------------------------------------------------------------------------------------


@BACKENDS
@pytest.mark.parametrize("where", ["step", "_infos"])
def test_the_next_step_returns_what_the_interrupted_one_did(
    make: Any, monkeypatch: pytest.MonkeyPatch, backend: str, where: str
) -> None:
    env = make(backend)
    env.step(GO)
    env.step(GO)
    with monkeypatch.context() as patch:
        if where == "step":
            interrupt(patch, env, "step", "send")
        else:
            patch.setattr(f"stepmill.interop.tianshou.{where}", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.step(GO)
        if where == "_infos":
            with pytest.raises(KeyboardInterrupt):
                env.step(BAD)
    obs, reward, terminated, truncated, infos = env.step(BAD)
    assert counts(obs) == [3, 3, 3]
    assert reward.tolist() == [1, 1, 1]
    assert terminated.tolist() == [True] * 3
    assert truncated.tolist() == [False] * 3
    assert [(info["env_id"], info["t"]) for info in infos] == [(0, 3), (1, 3), (2, 3)]
    assert reward.dtype == np.float64
    assert terminated.dtype == truncated.dtype == np.bool_
    env.reset()
    assert counts(env.step(GO)[0]) == [1, 1, 1]


def test_steps_of_other_envs_than_the_interrupted_ones(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each env has its row until it is asked for, or reset."""
    env = make()
    with monkeypatch.context() as patch:
        interrupt(patch, env, "step", "send")
        with pytest.raises(KeyboardInterrupt):
            env.step(GO[:2], [0, 1])
    with pytest.raises(errors.ActionError, match="expected 2 rows, one per env, got an array of shape"):
        env.step(GO, [2, 0])
    obs, *_, infos = env.step(np.array([0, CRASH]), [2, 0])
    assert counts(obs) == [1, 1]
    assert [info["env_id"] for info in infos] == [2, 0]
    assert counts(env.reset([1])[0]) == [0]
    assert counts(env.step(GO)[0]) == [2, 1, 2]


def test_a_real_ctrl_c(make: Any) -> None:
    env = make()
    env.set_env_attr("target", os.getpid(), [1])
    with pytest.raises(KeyboardInterrupt):
        env.step(GO)
    assert counts(env.step(BAD)[0]) == [1, 1, 1]


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_ctrl_c_inside_an_env(make: Any, on_error: str) -> None:
    env = make("inline", on_error=on_error)
    env.set_env_attr("target", os.getpid(), [1])
    with pytest.raises(KeyboardInterrupt):
        env.step(GO)
    obs, _, _, truncated, infos = env.step(BAD)
    assert counts(obs) == [1, 0, 1]
    assert truncated.tolist() == [False, True, False]
    assert infos[1]["abnormal"]


@pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
def test_a_reset_that_was_interrupted_is_done_by_the_next_step(
    make: Any, monkeypatch: pytest.MonkeyPatch, autoreset: str
) -> None:
    """Its rows are ends, at which a collector resets again."""
    env = make(autoreset=autoreset)
    env.step(GO)
    with monkeypatch.context() as patch:
        interrupt(patch, env, "reset", "async_reset")
        with pytest.raises(KeyboardInterrupt):
            env.reset([1], seed=8)
    obs, reward, terminated, truncated, infos = env.step(GO)
    assert counts(obs) == [2, 0, 2]
    assert reward[1] == 0
    assert not terminated.any()
    assert truncated.tolist() == [False, True, False]
    assert infos[1]["env_id"] == 1
    expected, _ = env.reset([1], seed=8)
    np.testing.assert_array_equal(obs[1]["place"], expected[0]["place"])


def test_what_closing_leaves(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make()
    with monkeypatch.context() as patch:
        patch.setattr("stepmill.interop.tianshou._infos", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            env.step(GO)
    env.close()
    with pytest.raises(errors.ClosedError):
        env.step(GO)


# ---- arguments -----------------------------------------------------------------------------------


def test_arguments_that_reset_does_not_take(make: Any) -> None:
    env = make("inline")
    env.step(GO)
    with pytest.raises(errors.InputError, match="expected seed and options, got foo: what the envs take goes into opt"):
        env.reset(foo=1)
    with pytest.raises(errors.EnvIdError):
        env.reset([7])
    assert counts(env.step(GO)[0]) == [2, 2, 2]


def test_make_vector_env_has_one_env_type() -> None:
    with pytest.raises(errors.ConfigError, match="got env_type"):
        make_vector_env("CartPole-v1", env_type="gym")
