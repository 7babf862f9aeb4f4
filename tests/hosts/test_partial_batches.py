"""``recv(timeout, at_least)``: what is ready when the time is over, without a batch that is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.backends import INLINE, PROCESSES, Backend
from support.envs.remote import Teller
from support.injection import Alarm, Alarms, at_every_point
from support.probes import GatedPool, assert_same, seen

N = 6


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_a_batch_has_the_rows_that_are_ready(view: str) -> None:
    with GatedPool(N, view, batch_size=4) as gated:
        pool = gated.pool
        pool.send(np.zeros(N, np.float32), np.arange(N))
        none = seen(view, pool.recv(timeout=0, at_least=0))
        assert (len(none.obs), len(none.reward), len(none.info["env_id"])) == (0, 0, 0)
        came = []
        for ready in (2, 1):
            gated.open(ready)
            came += [*seen(view, pool.recv(timeout=0, at_least=ready)).info["env_id"]]
            assert len(pool.in_flight) == N - len(came)
        gated.open(3)
        came += [*seen(view, pool.recv()).info["env_id"]]
        assert sorted(came) == list(range(N))
        with pytest.raises(errors.NothingInFlightError):
            pool.recv(timeout=0, at_least=0)


@pytest.mark.parametrize("task", [Teller, "CartPole-v1"], ids=["inline", "threads"])
def test_a_caller_that_never_waits_gets_every_row(task: Any) -> None:
    """Where nobody else steps the envs, the caller does, although it has no time."""
    with stepmill.make(task, num_envs=N, batch_size=3, **({"backend": "inline"} if task is Teller else {})) as pool:
        for _ in range(5):
            pool.send(np.zeros(N, np.int64), np.arange(N))
            came: list[int] = []
            while pool.in_flight:
                came += pool.recv(timeout=0, at_least=0)[4]["env_id"].tolist()
            assert sorted(came) == list(range(N))


@pytest.mark.parametrize("backend", [INLINE, *PROCESSES], ids=str)
@pytest.mark.parametrize("at_least", [0, 1, 3])
def test_every_action_has_one_row(backend: Backend, at_least: int) -> None:
    with (
        backend.make(Teller, num_envs=N, batch_size=3, seed=3) as pool,
        INLINE.make(Teller, num_envs=N, seed=3) as twin,
    ):
        actions = np.arange(N) % 2
        for _ in range(5):
            pool.send(actions, np.arange(N))
            rows: dict[int, Any] = {}
            while pool.in_flight:
                left = len(pool.in_flight)
                obs, reward, *_, info = pool.recv(1e-4, at_least)
                assert min(at_least, left) <= len(reward) <= 3
                assert not rows.keys() & {*info["env_id"]}
                rows |= zip(info["env_id"].tolist(), zip(obs, reward, strict=True), strict=True)
            obs, reward, *_ = twin.step(actions)
            assert_same([rows[i] for i in range(N)], [*zip(obs, reward, strict=True)])


def test_an_empty_batch_is_like_others() -> None:
    with GatedPool(4, batch_size=2) as gated:
        gated.pool.send(np.zeros(4, np.float32), np.arange(4))
        none = gated.pool.recv(0, 0)
        gated.open(4)
        some = gated.pool.recv()
        for one, other in zip(none[:4], some[:4], strict=True):
            assert (one.dtype, one.shape) == (other.dtype, (0, *other.shape[1:]))
        assert none[4].keys() == some[4].keys()


def test_who_sends_without_ids_sends_to_the_rows_that_came() -> None:
    with GatedPool(4, batch_size=4 - 1) as gated:
        gated.pool.send(np.zeros(4, np.float32), np.arange(4))
        gated.open(1)
        first = gated.pool.recv(0, 1)[4]["env_id"]
        gated.pool.send(np.zeros(1, np.float32))
        assert gated.pool.in_flight == [0, 1, 2, 3]
        assert len(first) == 1
        gated.pool.recv(0, 0)
        with pytest.raises(errors.EnvIdError, match="and there was none"):
            gated.pool.send(np.zeros(0, np.float32))


def test_a_recorded_order_has_its_batches(tmp_path: Path) -> None:
    read, write = os.pipe()

    def start() -> Any:
        return stepmill.make("Probe-v0", num_envs=4, batch_size=2, num_threads=2, gate_fd=read)

    def played(pool: Any, ready: tuple[int, int]) -> Any:
        pool.reset()
        pool.send(np.zeros(4, np.float32), range(4))
        results = [pool.recv(0, 0)]
        os.write(write, b"x" * ready[0])
        results.append(pool.recv(0, 1))
        os.write(write, b"x" * ready[1])
        return [*results, pool.recv(), pool.recv()]

    with start() as pool:
        pool.record_order(tmp_path / "order")
        recorded = played(pool, (1, 3))
    assert [len(one[1]) for one in recorded] == [0, 1, 2, 1]
    with start() as pool:
        pool.replay_order(tmp_path / "order")
        assert_same(played(pool, (4, 0)), recorded)
    with start() as pool:
        pool.replay_order(tmp_path / "order")
        pool.reset()
        os.write(write, b"xxxx")
        pool.send(np.zeros(4, np.float32), range(4))
        pool.recv(0, 0)
        with pytest.raises(errors.StateError, match="1 envs were received there, and here it would be 2"):
            pool.recv()
        assert len(pool.recv(0, 1)[1]) == 1
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("bad", [-1, 3, 1.5, "1", [1], 10**30])
def test_a_bad_number_is_refused(bad: Any) -> None:
    with stepmill.make("CartPole-v1", num_envs=4, batch_size=2) as pool:
        pool.async_reset()
        with pytest.raises(errors.InputError, match=r"at_least=.*expected 0 to batch_size=2"):
            pool.recv(at_least=bad)
        assert len(pool.recv(at_least=np.int64(1))[1]) == 2  # the time is never over


def test_a_sync_pool_refuses_it() -> None:
    with stepmill.make("CartPole-v1", num_envs=4) as pool:
        pool.async_reset()
        with pytest.raises(errors.UsageError, match="for async pools"):
            pool.recv(0, 0)
        assert len(pool.recv()[1]) == 4


def test_a_handler_that_raises_leaves_no_empty_batch_for_the_next_call() -> None:
    with GatedPool(4, "dm", batch_size=2) as gated:
        gated.pool.send(np.zeros(4, np.float32), np.arange(4))

        def attempt(alarms: Alarms) -> None:
            with contextlib.suppress(Alarm), alarms:
                assert len(gated.pool.recv(0, 0).reward) == 0
            with pytest.raises(errors.RecvTimeoutError):
                gated.pool.recv(timeout=0)

        assert at_every_point(attempt, __file__) >= 1
