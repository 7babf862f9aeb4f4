"""Failed resets and Ctrl-C: a collector never takes a step from one episode into another for a transition."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from stepmill import errors
from stepmill.interop.tianshou import PoolVectorEnv, make_vector_env
from support.envs import talkative
from support.envs.talkative import CRASH, InterruptingEnv
from support.injection import Alarms, at_every_point

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


def interrupt_reset(patch: pytest.MonkeyPatch, env: PoolVectorEnv) -> None:
    """Ctrl-C in a reset of the pool, once its envs are at work."""

    def interrupted(*args: Any, **kwargs: Any) -> None:
        env.pool.async_reset(*args, **kwargs)
        raise KeyboardInterrupt

    patch.setattr(env.pool, "reset", interrupted)


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
@pytest.mark.parametrize("where", ["recv_into", "_infos"])
def test_the_next_step_returns_what_the_interrupted_one_did(
    make: Any, monkeypatch: pytest.MonkeyPatch, backend: str, where: str
) -> None:
    env = make(backend)
    env.step(GO)
    env.step(GO)
    with monkeypatch.context() as patch:
        if where == "recv_into":
            patch.setattr(env.pool, where, raise_interrupt)
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
        patch.setattr(env.pool, "recv_into", raise_interrupt)
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
        interrupt_reset(patch, env)
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


def ctrl_c(n: int) -> Alarms:
    return Alarms(n, __file__, talkative.__file__, raising=KeyboardInterrupt)


def points(attempt: Callable[[Alarms], None]) -> int:
    """Calls ``attempt`` with Ctrl-C at every point of our code and Tianshou's, but not of the envs'."""
    return at_every_point(attempt, __file__, talkative.__file__, raising=KeyboardInterrupt)


@pytest.mark.parametrize("first", [[0, 1, 2], [1, 0]], ids=["the same envs", "some of them"])
def test_no_row_is_lost_wherever_ctrl_c_comes(make: Any, first: list[int]) -> None:
    """Again and again, and the second time while the rows of the first are put together with new ones."""
    env = make("inline", length=10**6)
    seen = [0] * 3

    def attempt(alarms: Alarms) -> None:
        for ids, interrupts in [(first, ctrl_c(alarms.n // 2)), ([2, 0, 1], alarms), ([0, 1, 2], None)]:
            try:
                with interrupts or contextlib.nullcontext():
                    obs, *_, infos = env.step(GO[: len(ids)], ids)
            except KeyboardInterrupt:
                continue
            for one in ids:
                seen[one] += 1
            assert [info["env_id"] for info in infos] == ids
            assert counts(obs) == [seen[one] for one in ids]

    assert points(attempt) > 100


@pytest.mark.parametrize("env_id", [None, [1]], ids=["all", "one"])
def test_a_reset_is_done_or_to_be_done_wherever_ctrl_c_comes(make: Any, env_id: Any) -> None:
    """Also if the step that does it is interrupted: its rows are ends."""
    env = make("inline", length=10**6)
    ids = env_id or [0, 1, 2]

    def attempt(alarms: Alarms) -> None:
        env.reset()
        expected = counts(env.step(GO)[0])
        steps = []
        try:
            with ctrl_c(alarms.n // 2):
                env.reset(env_id)
            for one in ids:
                expected[one] = 0
            is_done = True
        except KeyboardInterrupt:
            is_done = False
        for interrupts in (alarms, None):
            with contextlib.suppress(KeyboardInterrupt), interrupts or contextlib.nullcontext():
                steps.append(env.step(GO))
        obs, reward, _, truncated, _ = steps[0]
        if truncated.any():
            assert not is_done
            assert truncated.tolist() == [one in ids for one in range(3)]
            assert reward[ids].tolist() == [0.0] * len(ids)
        assert counts(obs) == [0 if end else count + 1 for count, end in zip(expected, truncated, strict=True)]
        for later in steps[1:]:
            assert counts(later[0]) == [count + 1 for count in counts(obs)]

    assert points(attempt) > 100


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
