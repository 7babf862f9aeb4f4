"""Ends and interruptions of pools on a GPU: nothing is lost, nothing stays behind, and nobody else gets in."""

from __future__ import annotations

import copy
import gc
import importlib.util
import os
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.cuda_pools import Both, HostGpu
from support.host_kernels import MODES
from support.injection import Alarm, Alarms, at_every_point
from support.probes import assert_same, leaves

N = 3
TASK = "FrozenLake-v1"
ACTION = np.array([1, 2, 1])

pytestmark = pytest.mark.usefixtures("deadline")


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


def calls_of(pool: Any) -> list[Callable[[], Any]]:
    return [
        pool.close,
        pool.reset,
        pool.recv,
        pool.async_reset,
        pool.check,
        pool.stats,
        pool.save,
        pool.drain,
        lambda: pool.send(ACTION),
        lambda: pool.step(ACTION),
        lambda: pool.fork(0, [1]),
        lambda: pool.rollout(lambda *_: ACTION, 2),
        lambda: pool.checkpoint("never"),
        lambda: pool.__exit__(None, None, None),
    ]


def test_a_thread_that_comes_in_between_is_not_undone(gpu: HostGpu, make: Any) -> None:
    """As soon as the lock is free, and before the first thread has its result."""
    pool = make(TASK, num_envs=N, backend="cuda")
    pool.reset()
    lock = pool._engine._lock

    class ThenAnother:
        locked, __enter__ = lock.locked, lock.__enter__

        def __exit__(self, *error: Any) -> None:
            lock.release()
            pool._engine._lock = lock
            other = threading.Thread(target=pool.reset)
            other.start()
            other.join()
            other = threading.Thread(target=pool.async_reset)
            other.start()
            other.join()

    pool._engine._lock = ThenAnother()
    pool.step(ACTION)
    assert pool.in_flight == [0, 1, 2]
    assert pool.recv()[4]["elapsed_step"].tolist() == [0] * N
    assert pool.in_flight == []


# ---- interrupts ----------------------------------------------------------------------------------

CALLS: dict[str, Callable[[Any], Any]] = {
    "step": lambda pool: pool.step(ACTION),
    "step of some": lambda pool: pool.step([1], [1]),
    "reset": lambda pool: pool.reset(seed=3),
    "reset of some": lambda pool: pool.reset([2, 0], seed=[1, None]),
    "masked reset": lambda pool: pool.reset(options={"reset_mask": np.array([True, False, True])}),
    "recv": lambda pool: pool.recv(),
    "restore": lambda pool: pool.fork(0, [2, 1]),
}


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
@pytest.mark.parametrize("name", CALLS)
def test_a_signal_handler_that_raises_loses_nothing(gpu: HostGpu, make: Any, name: str, mode: str) -> None:
    """After it the call has happened, and its rows are in flight, or it has not."""
    call = CALLS[name]
    pool = make(TASK, num_envs=N, seed=7, backend="cuda", autoreset=mode)

    def begin() -> None:
        while pool.in_flight:
            pool.recv()
        pool.reset(seed=7)
        pool.step(ACTION)
        if name == "recv":
            pool.send(ACTION)

    begin()
    expected, then = call(pool), pool.step(ACTION)

    def attempt(alarms: Alarms) -> None:
        begin()
        try:
            with alarms:
                got = call(pool)
        except Alarm:
            got = pool.recv() if pool.in_flight else call(pool)
        if len(got) != len(expected):  # rows of a reset, received as those of a step
            got = got[0], got[4]
        assert_same(got, expected)
        assert_same(pool.step(ACTION), then)

    assert at_every_point(attempt, __file__) > 20


def test_a_refused_send_that_is_interrupted_changes_nothing(gpu: HostGpu, make: Any) -> None:
    pool = make(TASK, num_envs=N, seed=7, backend="cuda")
    pool.reset()

    def attempt(alarms: Alarms) -> None:
        pool.send(ACTION)
        try:
            with alarms, pytest.raises(errors.InFlightError):
                pool.send(ACTION, np.arange(N))
        except Alarm:
            pass
        assert pool.in_flight == list(range(N))
        pool.recv()
        assert len(pool.step(ACTION)) == 5
        assert pool.in_flight == []

    assert at_every_point(attempt, __file__) > 5


def test_an_interrupt_while_a_pool_is_made(gpu: HostGpu) -> None:
    gc.collect()
    before = gpu.left()

    def attempt(alarms: Alarms) -> None:
        pool = None
        try:
            with alarms:
                pool = stepmill.make(TASK, num_envs=N, backend="cuda")
        except Alarm:
            pass
        if pool is not None:
            pool.close()
        del pool
        gc.collect()
        assert gpu.left() == before

    assert at_every_point(attempt, __file__, stride=101) > 20


# ---- others who come in --------------------------------------------------------------------------


def test_a_second_call_is_refused(gpu: HostGpu, make: Any) -> None:
    pool = make(TASK, num_envs=N, backend="cuda")
    pool.reset()
    with pool._engine._free():  # as inside of a call
        for call in calls_of(pool):
            with pytest.raises(errors.ConcurrentUseError, match="signal handler"):
                call()
        refused: list[bool] = []

        def elsewhere() -> None:
            for call in calls_of(pool):
                with pytest.raises(errors.ConcurrentUseError, match="another thread is inside this pool"):
                    call()
                refused.append(True)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert len(refused) == len(calls_of(pool))
    assert pool.step(ACTION)[4]["elapsed_step"].tolist() == [1] * N


def test_threads_one_after_another(both: Callable[..., Both]) -> None:
    pools = both(TASK, num_envs=N)
    results: list[Any] = []

    def run() -> None:
        pools.do(lambda pool: pool.reset())
        results.append(pools.do(lambda pool: [pool.step(ACTION) for _ in range(20)]))

    for _ in range(3):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    for got, expected in results:
        for one, other in zip(got, expected, strict=True):
            assert_same((one[0], one[2:]), (other[0], other[2:]))


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where other tests have imported it
def test_a_forked_child_is_refused(gpu: HostGpu, make: Any) -> None:
    pool = make(TASK, num_envs=N, backend="cuda")
    kept = pool.reset()
    before = gpu.left()
    child = os.fork()
    if child == 0:
        refused = 0
        try:
            for call in calls_of(pool)[1:-1]:
                try:
                    call()
                except errors.ForkedError:
                    refused += 1
            pool.close()
            del call
            gc.collect()
            refused = refused if gpu.left() == before else 99
        finally:
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls_of(pool)) - 2
    assert pool.step(ACTION)[4]["elapsed_step"].tolist() == [1] * N
    assert len(kept) == 2


# ---- what is kept, and what is left --------------------------------------------------------------


@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_copy_is_refused(gpu: HostGpu, make: Any, how: Callable[[Any], Any]) -> None:
    pool = make(TASK, num_envs=N, backend="cuda")
    for one in (pool, pool._engine):
        with pytest.raises(errors.CopyError, match="cannot be copied or pickled"):
            how(one)
    assert not pool.closed


@pytest.mark.parametrize("end", ["close", "collect"])
def test_nothing_is_left(gpu: HostGpu, end: str) -> None:
    gc.collect()
    before = gpu.left()
    pool = stepmill.make(TASK, num_envs=N, backend="cuda")
    assert "backend='cuda'" in repr(pool)
    assert (pool.backend, pool.device, pool.is_native, pool.is_async) == ("cuda", "cuda:0", True, False)
    pool.reset()
    pool.save([1])
    pool.send(ACTION)
    calls = calls_of(pool)
    if end == "close":
        pool.close()
        pool.close()
        assert gpu.left() == before
        for call in calls[1:-1]:
            with pytest.raises(errors.ClosedError):
                call()
        assert "closed" in repr(pool)
        assert pool.in_flight == []
    del pool, calls
    if end == "close":
        del call
    gc.collect()
    assert gpu.left() == before


def test_what_is_held_keeps_its_own_memory_alone(gpu: HostGpu) -> None:
    gc.collect()
    before = gpu.left()["allocated"]
    pool = stepmill.make("CartPole-v1", num_envs=N, backend="cuda", output="torch" if has_torch() else "numpy")
    kept = pool.reset()
    states = pool.save()
    pool.step(np.zeros(N, int))
    pool.close()
    assert gpu.left()["allocated"] == before + 1 + has_torch()  # the states, and the batch
    assert all(bytes(one) for one in states)
    del states
    assert gpu.left()["allocated"] == before + has_torch()
    assert kept[0].shape == (N, 4)
    del kept
    assert gpu.left()["allocated"] == before


@pytest.mark.parametrize("mode", MODES)
def test_results_of_numpy_are_the_caller_s_own(gpu: HostGpu, make: Any, mode: str) -> None:
    def play(spoils: bool) -> list[Any]:
        pool = make(TASK, num_envs=N, autoreset=mode, backend="cuda", max_episode_steps=4)
        results, kept = [pool.reset()], []
        for i in range(14):
            over = np.flatnonzero(results[-1][2] | results[-1][3]) if len(results[-1]) == 5 else []
            again = over if mode == "disabled" and len(over) else [1] if i == 7 else None
            kept.append(pool.step(ACTION) if again is None else pool.reset(again))
            results.append(copy.deepcopy(kept[-1]))
            if i % 2 and spoils:
                for array in leaves(kept[-1]):
                    array[...] = 1
        if not spoils:
            assert_same(kept, results[1:])
        return results

    assert_same(play(spoils=True), play(spoils=False))


def test_blocks_are_used_again(gpu: HostGpu, make: Any) -> None:
    pool = make(TASK, num_envs=N, backend="cuda")
    before = None
    for turn in range(100):
        pool.step(ACTION)
        pool.step([1, 2], [2, 0])
        pool.reset([1])
        pool.fork(0, [1])
        pool.stats()
        if turn == 3:
            before = gpu.left()
    assert gpu.left() == before


def test_two_pools(both: Callable[..., Both]) -> None:
    one, other = both(TASK, num_envs=N, seed=4), both(TASK, num_envs=N, seed=4)
    for _ in range(30):
        assert_same(one.gpu.step(ACTION), other.gpu.step(ACTION))
    one.gpu.close()
    assert_same(other.gpu.step(ACTION)[0], (one.cpu, [one.cpu.step(ACTION) for _ in range(31)])[1][-1][0])
