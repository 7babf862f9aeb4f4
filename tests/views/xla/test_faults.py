"""What goes wrong inside of a program: JAX raises our text, the pool our exception, and both go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

jax = pytest.importorskip("jax")
jnp = jax.numpy

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from support.envs import InfoEnv  # noqa: E402
from support.programs import actions_of, at, await_all, make_kind  # noqa: E402

pytestmark = pytest.mark.usefixtures("server", "deadline")


class Moody(gymnasium.Env[Any, Any]):
    """Action 1 raises, 2 kills the process, 3 stays for good, 4 ends the episode."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if action == 1:
            raise ValueError("not today")
        if action == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        while action == 3:
            signal.pause()
        return np.full(2, self.steps, np.float32), 1.0, bool(action == 4), False, {}


def fails(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(Exception, match=text) as caught:
        await_all(call())
    assert "jax" in type(caught.value).__module__


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_an_env_that_raises(backend: str) -> None:
    with stepmill.make(Moody, num_envs=3, backend=backend) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        jitted = jax.jit(step)
        assert pool.xla_error is None
        fails(lambda: jitted(handle, jnp.array([0, 1, 0])), "EnvError: env 1 failed in step .*ValueError: not today")
        with pytest.raises(errors.EnvError, match="not today") as caught:
            pool.step([0, 0, 0])
        assert caught.value.env_id == 1
        assert isinstance(caught.value.__cause__, ValueError)
        obs, _reward, _terminated, truncated, info = caught.value.batch
        np.testing.assert_array_equal(obs[[0, 2]], np.ones((2, 2)))
        assert truncated.tolist() == info["abnormal"].tolist() == [False, True, False]
        # The batch was given away with the error, and the pool goes on, in a program and outside.
        assert pool.xla_error is caught.value
        _, (obs, *_) = await_all(jitted(handle, jnp.zeros(3, int)))
        np.testing.assert_array_equal(np.asarray(obs)[:, 0], [2, 0, 2])
        pool.step([0, 0, 0])


def test_an_error_that_was_looked_at_is_not_raised_again() -> None:
    with stepmill.make(Moody, num_envs=2, backend="inline") as pool:
        handle, _, _, step = pool.xla()
        fails(lambda: jax.jit(step)(handle, jnp.array([7, 0])), "ActionError: action of env 0.*got 7")
        assert isinstance(pool.xla_error, errors.ActionError)
        pool.reset()


def test_the_last_batch_of_a_program_that_fails_in_its_middle() -> None:
    with stepmill.make(Moody, num_envs=2, backend="inline") as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        actions = jnp.array([[0, 0]] * 5 + [[1, 0]] + [[0, 0]] * 5)
        fails(lambda: jax.jit(lambda *given: jax.lax.scan(step, *given))(handle, actions), "step 5")
        assert pool.xla_error.batch[0][1].tolist() == [6, 6]
        assert pool.stats()["steps"] == 2 * 7  # none after it


@pytest.mark.parametrize("kind", ["native", "native-process", "inline", "process"])
def test_a_failing_row_under_restart(kind: str) -> None:
    """No error: the row says so."""
    own = {"length": 100, "fail_in": "step", "fail_at": 3, "info": False}
    with make_kind(kind, on_error="restart", **own) as inside, make_kind(kind, on_error="restart", **own) as outside:
        handle, _, _, step = inside.xla()
        inside.reset()
        outside.reset()
        jitted, seen = jax.jit(step), []
        for _ in range(6):
            _, (obs, _, _, truncated, info) = jitted(handle, jnp.zeros(3, jnp.float32))
            expected = outside.step(np.zeros(3, np.float32))
            np.testing.assert_array_equal(np.asarray(obs), expected[0].astype(np.float32))
            np.testing.assert_array_equal(np.asarray(truncated), expected[3])
            abnormal = expected[4].get("abnormal", np.zeros(3, bool))
            np.testing.assert_array_equal(np.asarray(info["abnormal"]), abnormal)
            seen += abnormal.tolist()
        assert any(seen)
        assert not all(seen)
        assert inside.xla_error is None


@pytest.mark.parametrize("kind", ["native", "native-process", "inline", "process"])
def test_every_kind_raises_and_goes_on(kind: str) -> None:
    with make_kind(kind, length=100, fail_in="step", fail_at=3, info=False) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        jitted = jax.jit(step)
        for _ in range(2):
            await_all(jitted(handle, jnp.zeros(3, jnp.float32)))
        fails(lambda: jitted(handle, jnp.zeros(3, jnp.float32)), "asked to fail in step")
        assert len(pool.xla_error.errors) == 3
        np.testing.assert_array_equal(pool.xla_error.batch[3], [True] * 3)
        await_all(jitted(handle, jnp.zeros(3, jnp.float32)))


def test_a_killed_worker() -> None:
    with stepmill.make(Moody, num_envs=2, backend="process", num_workers=2) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        jitted = jax.jit(step)
        fails(lambda: jitted(handle, jnp.array([2, 0])), "WorkerDiedError: env 0 .*SIGKILL")
        assert isinstance(pool.xla_error, errors.WorkerDiedError)
        _, (obs, *_) = await_all(jitted(handle, jnp.zeros(2, int)))
        np.testing.assert_array_equal(np.asarray(obs)[:, 0], [0, 2])


def test_a_step_that_takes_too_long() -> None:
    with stepmill.make(Moody, num_envs=2, backend="process", num_workers=2, step_timeout=2.0) as pool:
        handle, _, _, step = pool.xla()
        pool.reset()
        fails(lambda: jax.jit(step)(handle, jnp.array([3, 0])), "EnvTimeoutError: env 0")
        assert isinstance(pool.xla_error, errors.EnvTimeoutError)
        await_all(jax.jit(step)(handle, jnp.zeros(2, int)))


@pytest.mark.parametrize("kind", ["native", "inline", "process"])
def test_what_a_program_sends_is_checked(kind: str) -> None:
    """As always: nothing is sent, and the pool goes on."""
    with make_kind(kind, info=False, autoreset="disabled") as pool:
        handle, recv, send, step = pool.xla()
        pool.reset()
        jitted = jax.jit(step)
        zeros = jnp.zeros(3, jnp.float32)
        steps = pool.stats()["steps"]
        for call, error, text in (
            (lambda: jitted(handle, zeros.at[1].set(jnp.nan)), errors.ActionError, "action of env 1.*nan"),
            (lambda: jitted(handle, zeros, jnp.array([0, 1, 3])), errors.EnvIdError, "env_id 3 is out of range"),
            (lambda: jitted(handle, zeros, jnp.array([0, -1, 2])), errors.EnvIdError, "env_id -1 is out of range"),
            (lambda: jitted(handle, zeros, jnp.array([0, 1, 1])), errors.EnvIdError, "env_id 1 is given twice"),
            (lambda: jitted(handle, zeros[:2], jnp.array([0, 1])), errors.UsageError, "batches of 3 rows, and 2 envs"),
            (lambda: jax.jit(recv)(handle), errors.NothingInFlightError, "nothing in flight"),
        ):
            fails(call, f"{error.__name__}: .*{text}")
            with pytest.raises(error, match=text):
                pool.reset()
            assert pool.in_flight == []
        assert pool.stats()["steps"] == steps
        part = jax.jit(send)(handle, zeros[:2], jnp.array([0, 1]))
        fails(lambda: jax.jit(recv)(part), "2 envs are in flight: send")
        fails(lambda: jax.jit(send)(handle, zeros), "InFlightError: env 0 is in flight")
        assert isinstance(pool.xla_error, errors.InFlightError)
        _, (obs, *_) = jax.jit(recv)(jax.jit(send)(handle, zeros[:1], jnp.array([2])))  # the rest of them
        assert await_all(obs).shape == (3, 2)
        for _ in range(3):
            await_all(jitted(handle, zeros))
        fails(lambda: jitted(handle, zeros), "NeedsResetError: the episode of env 0 is over")
        assert isinstance(pool.xla_error, errors.NeedsResetError)
        pool.reset()
        await_all(jitted(handle, zeros))


def test_a_batch_of_another_size_is_left_for_recv() -> None:
    with make_kind("native", num_envs=4, batch_size=2) as pool:
        handle, recv, _, _ = pool.xla()
        fails(lambda: jax.jit(recv)(handle), "NothingInFlightError")
        assert pool.xla_error is not None
        pool.async_reset([1])
        fails(lambda: jax.jit(recv)(handle), "1 env is in flight")
        assert pool.xla_error is not None
        assert pool.recv()[-1]["env_id"].tolist() == [1]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_infos_that_an_env_does_not_declare(backend: str) -> None:
    with stepmill.make(InfoEnv, num_envs=2, info={"lives": 3}, backend=backend) as pool:
        handle, _, _, step = pool.xla()
        fails(
            lambda: jax.jit(step)(handle, jnp.zeros(2, int)), "UnsupportedError: xla: an env has told the info 'lives'"
        )
        with pytest.raises(errors.UnsupportedError, match="info_space"):
            pool.reset()
        pool.reset()


def test_keys_that_the_action_space_lacks() -> None:
    with make_kind("arrays-inline") as pool:
        handle, _, _, step = pool.xla()
        action = at(actions_of("arrays-inline", 1), 0)
        for other in ({**action, "pull": 1}, {"push": action["push"]}, 3):
            with pytest.raises(errors.ActionError, match="expected the parts of Dict"):
                step(handle, other)
        await_all(step(handle, action))


def test_shapes_are_checked_when_a_program_is_traced() -> None:
    with stepmill.make("Pendulum-v1", num_envs=3) as pool:
        handle, _, _, step = pool.xla()
        for action in (jnp.zeros(3), jnp.zeros((2, 1)), jnp.zeros((3, 2)), jnp.zeros(())):
            with pytest.raises(errors.ActionError, match=r"expected shape \(3, 1\)"):
                jax.jit(step)(handle, action)
        with pytest.raises(errors.ActionTypeError, match="complex64"):
            step(handle, jnp.zeros((3, 1), jnp.complex64))
        with pytest.raises(errors.ActionTypeError, match="int4"):
            step(handle, jnp.zeros((3, 1), jnp.int4))
        with pytest.raises(errors.EnvIdError, match="1-d array of integers"):
            step(handle, jnp.zeros((3, 1)), jnp.zeros(3))
        with pytest.raises(errors.UnsupportedError, match="expected the handle"):
            step(jnp.zeros(3), jnp.zeros((3, 1)))
        assert pool.xla_error is None
