"""Snapshots of pools: what they have counted, from inside and from outside, and what happened between two of them."""

from __future__ import annotations

import dataclasses
import gc
import os
import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import _native
from stepmill.hosts.observing import Interval, Snapshot, WorkerSnapshot, snapshot_of
from stepmill.tools.processes import look_at
from support.envs import CountingEnv

pytestmark = pytest.mark.usefixtures("deadline")

EVERYWHERE = {
    *("backend", "num_envs", "servers", "batches", "steps", "episodes", "failures", "restarts", "steps_per_second"),
    *("in_flight", "batches_held", "memory_bytes", "locked_bytes", "step_cost_ns", "threads_started"),
}
OF_WORKERS = {"pid", "alive", "use", "busy_seconds", "actions", "restarts", "outbox_bytes", "memory_bytes"}
POOLS = [
    pytest.param("CartPole-v1", {"num_threads": 2}, id="threads"),
    pytest.param("CartPole-v1", {"backend": "process", "num_workers": 2}, id="native processes"),
    pytest.param(CountingEnv, {"backend": "inline"}, id="inline"),
    pytest.param(CountingEnv, {"backend": "process", "num_workers": 2}, id="processes"),
]


def played(task: Any, arguments: dict[str, Any]) -> Any:
    pool = stepmill.make(task, num_envs=4, **arguments)
    pool.reset()
    for _ in range(5):
        pool.step(np.zeros(4, int))
    return pool


@pytest.fixture
def snapshot() -> Snapshot:
    """A pool with a worker process, that has done nothing."""
    with stepmill.make("CartPole-v1", num_envs=2, num_workers=1, backend="process") as pool:
        return snapshot_of(_native.Tap(pool._engine))


@pytest.mark.parametrize(("task", "arguments"), POOLS)
def test_a_pool_looks_the_same_from_inside_and_from_outside(task: Any, arguments: dict[str, Any]) -> None:
    with played(task, arguments) as pool:
        inside = snapshot_of(_native.Tap(pool._engine))
        outside = look_at(os.getpid()).pools[inside.serial]
        changing = {"age_seconds", "state_seconds", "spent_seconds", "step_times"}
        for one in dataclasses.fields(Snapshot):
            if one.name not in changing:
                assert getattr(inside, one.name) == getattr(outside, one.name), one.name
        np.testing.assert_array_equal(inside.step_times, outside.step_times)
        assert inside.age_seconds <= outside.age_seconds
        assert (inside.steps, inside.batches) == (24, 6)


@pytest.mark.parametrize(("task", "arguments"), POOLS)
def test_stats_has_the_same_words_everywhere(task: Any, arguments: dict[str, Any]) -> None:
    with played(task, arguments) as pool:
        stats = pool.stats()
    if arguments.get("backend") == "process":
        assert stats.keys() == EVERYWHERE | {"workers", "step_seconds", "clones"}
        assert [one.keys() for one in stats["workers"]] == [OF_WORKERS] * 2
        assert sum(one["actions"] for one in stats["workers"]) == 24
        assert {name: len(values) for name, values in stats["step_seconds"].items()} == {"p50": 4, "p90": 4, "p99": 4}
        assert all((values > 0).all() for values in stats["step_seconds"].values())
    else:
        assert stats.keys() == EVERYWHERE


def test_the_docs_list_every_word_of_stats() -> None:
    page = (Path(__file__).parents[2] / "docs" / "interface.md").read_text()
    table = page.partition("| word of `stats()` | |")[2].partition("\n\n")[0]
    words = {word for row in table.splitlines() for word in re.findall(r"`(\w+)`", row)}
    assert words == EVERYWHERE | OF_WORKERS | {"workers", "step_seconds", "p50", "p90", "p99", "actors", "clones"}


# ---- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "arguments"), POOLS)
def test_a_pool_that_has_ended_keeps_its_counts(task: Any, arguments: dict[str, Any]) -> None:
    pool = played(task, arguments)
    tap = _native.Tap(pool._engine)
    pool.close()
    snapshot = snapshot_of(tap)
    assert (snapshot.steps, snapshot.batches, snapshot.workers) == (24, 6, [])
    assert tap.figures() == {}


def test_a_tap_does_not_keep_its_pool() -> None:
    pool = played("CartPole-v1", {})
    tap = _native.Tap(pool._engine)
    del pool
    gc.collect()
    assert tap.figures() == {}
    tap.watch(_native.WatchBook(4), print)  # is not for anybody
    assert snapshot_of(tap).steps == 24


def test_another_thread_may_look_while_the_pool_ends() -> None:
    taps = [_native.Tap(played("CartPole-v1", {})._engine)]
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            snapshot_of(taps[-1])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(200):  # each time the file of counters is closed and made anew
            with stepmill.make("CartPole-v1", num_envs=4) as pool:
                taps.append(_native.Tap(pool._engine))
    finally:
        ended.set()
        thread.join()


# ---- between two of them -------------------------------------------------------------------------


def test_percentiles_are_the_upper_bounds_of_step_times(snapshot: Snapshot) -> None:
    bounds = np.array(_native.SHARED_LAYOUT["times_bounds_ns"]) * 1e-9
    times = np.zeros((3, len(bounds)), np.uint32)
    times[1, [5, 40]] = 9, 1
    times[2, 7] = 1
    seconds = dataclasses.replace(snapshot, step_times=times).step_seconds()
    assert seconds["p50"].tolist() == [0.0, bounds[5], bounds[7]]
    assert seconds["p90"].tolist() == [0.0, bounds[5], bounds[7]]
    assert seconds["p99"].tolist() == [0.0, bounds[40], bounds[7]]


def after(start: Snapshot, seconds: float, worker: WorkerSnapshot, **counts: Any) -> Snapshot:
    age = start.age_seconds + seconds
    return dataclasses.replace(start, age_seconds=age, workers=[worker], **counts)


def worker(**fields: Any) -> WorkerSnapshot:
    return WorkerSnapshot(
        **{
            **{"pid": 1, "restarts": 0, "actions": 0, "busy_seconds": 0.0},
            **{"running_seconds": 0.0, "inside": 0, "slow_steps": {}, **fields},
        }
    )


def test_speeds_are_those_of_the_interval(snapshot: Snapshot) -> None:
    first = after(snapshot, 1.0, worker(actions=10, busy_seconds=0.5), steps=100)
    second = after(first, 2.0, worker(actions=30, busy_seconds=1.0), steps=300)
    lately = Interval(first, second)
    assert lately.seconds == pytest.approx(2.0)
    assert lately.per_second("steps") == pytest.approx(100)
    assert lately.workers()[0] == pytest.approx((0.25, 10.0))
    assert Interval(None, second).per_second("steps") == pytest.approx(300 / second.age_seconds)


def test_the_present_step_counts_for_as_long_as_it_has_run_in_the_interval(snapshot: Snapshot) -> None:
    first = after(snapshot, 1.0, worker(busy_seconds=1.0, running_seconds=5.0))
    still = after(first, 2.0, worker(busy_seconds=1.0, running_seconds=6.0))
    ended = after(first, 2.0, worker(busy_seconds=6.5))
    assert Interval(first, still).workers()[0].use == pytest.approx(0.5)
    assert Interval(first, ended).workers()[0].use == pytest.approx(0.25)


def test_a_thread_in_the_same_step_all_the_time_is_busy_and_its_env_is_known(snapshot: Snapshot) -> None:
    inside = 7 << 32 | 3 + 1
    first = after(snapshot, 1.0, worker(inside=inside), has_processes=False)
    second = after(first, 2.0, worker(inside=inside, slow_steps={1: 0.5}))
    lately = Interval(first, second)
    assert lately.workers()[0].use == 1.0
    assert lately.running_seconds() == pytest.approx({3: 2.0})
    assert second.slow_steps() == {1: 0.5}
