"""What a look at a process shows of its pools: here, of this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.tools.processes import ProcessSnapshot, look_at, report
from support.envs import CountingEnv
from support.envs.faulty import FaultyEnv, act
from support.envs.managed import launched
from support.probes import GatedPool
from support.processes import signal_to, worker_pids
from support.waiting import Gate, ends, eventually, in_thread


def seen(since: ProcessSnapshot | None = None, number: int | None = None) -> Any:
    """The pool of this process that was made last, or that one."""
    pools = report(since, look_at(os.getpid()))["pools"]
    return next(one for one in reversed(pools) if number is None or one["number"] == number)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path, 2)
    yield gate
    gate.close()


@pytest.mark.parametrize(
    ("task", "arguments", "backend"),
    [
        ("CartPole-v1", {}, "thread"),
        ("CartPole-v1", {"backend": "inline"}, "inline"),
        ("CartPole-v1", {"backend": "process", "num_workers": 1}, "process"),
        (CountingEnv, {"backend": "inline"}, "inline"),
        (CountingEnv, {"backend": "process", "num_workers": 2}, "process"),
    ],
    ids=["threads", "native inline", "native processes", "inline", "processes"],
)
def test_every_host_shows_what_stats_says(task: Any, arguments: dict[str, Any], backend: str) -> None:
    with stepmill.make(task, num_envs=3, **arguments) as pool:
        pool.reset()
        for _ in range(20):
            pool.step(np.zeros(3, int))
        found, stats = seen(), pool.stats()
        for name in ("batches", "steps", "episodes", "memory_bytes"):
            assert found[name] == stats[name], name
        assert (found["name"], found["backend"], found["user"]) == (pool.spec.id, backend, "pool")
        assert (found["num_envs"], found["batch_size"], found["in_flight"]) == (3, 3, 0)
        assert sum(found["time"].values()) == pytest.approx(1.0)
        if task is CountingEnv and backend == "inline":  # else a step is timed now and then, and a wait may not happen
            assert found["time"]["envs"] > 0
        assert found["state"] == "outside"
        pids = [one["pid"] for one in found["workers"] if one["pid"] is not None]
        assert pids == [one["pid"] for one in stats.get("workers", [])]
        if backend == "process":
            assert found["worker_rss_bytes"] > 1_000_000
            assert sum(one["actions_per_second"] for one in found["workers"]) > 0


@pytest.mark.parametrize("kind", ["serial", "sync", "async"])
def test_pools_of_managers_show(kind: str) -> None:
    with launched(kind, 2):
        found = seen()
    assert (found["user"], found["num_envs"], found["name"]) == ("manager", 2, "Trial")
    assert found["steps"] == 2


def test_a_pool_is_gone_when_it_is_closed() -> None:
    with stepmill.make("CartPole-v1", num_envs=1), stepmill.make("CartPole-v1", num_envs=2) as second:
        number = seen()["number"]
        second.close()
        assert seen()["number"] != number


def test_rates_are_those_between_two_looks() -> None:
    with stepmill.make("CartPole-v1", num_envs=5) as pool:
        pool.reset()
        before = look_at(os.getpid())
        for _ in range(10):
            pool.step(np.zeros(5, int))
        found = seen(before)
        assert found["steps_per_second"] * found["interval_seconds"] == pytest.approx(50)
        assert found["batches_per_second"] * found["interval_seconds"] == pytest.approx(10)
        assert found["interval_seconds"] < found["age_seconds"]


# ---- what goes on now ----------------------------------------------------------------------------


def test_a_caller_that_waits_for_threads() -> None:
    with GatedPool(4) as gated:
        gated.pool.send(np.zeros(4, np.float32))
        before = look_at(os.getpid())
        thread = in_thread(gated.pool.recv)
        assert eventually(lambda: seen()["state"] == "waiting")
        found = seen(before)
        assert found["in_flight"] == 4
        assert found["time"]["waiting"] > 0
        gated.open(4)
        thread.join()


def test_an_env_that_takes_long_in_a_worker(gate: Gate) -> None:
    config = [{"mishap": "gate" if env_id else ""} for env_id in range(2)]
    arguments = {"folder": gate.folder, "env_config": config, "num_workers": 2, "backend": "process"}
    with stepmill.make(FaultyEnv, num_envs=2, **arguments) as pool:
        pool.reset()
        pool.send(np.zeros(2, np.float32))
        assert gate.wait() == 1
        before = look_at(os.getpid())
        assert eventually(lambda: seen()["slow_envs"][:1] != [] and seen()["slow_envs"][0]["env"] == 1)
        first = seen()["slow_envs"][0]["running_seconds"]
        assert eventually(lambda: seen()["slow_envs"][0]["running_seconds"] > first)
        assert eventually(lambda: seen(before)["workers"][1]["use"] > 0.99)
        gate.open(1)
        pool.recv()
        assert [one["running_seconds"] for one in seen()["slow_envs"]] == [None, None]


def test_an_env_that_takes_long_in_the_caller(gate: Gate) -> None:
    with stepmill.make(FaultyEnv, mishap="gate", folder=gate.folder, backend="inline") as pool:
        pool.reset()
        thread = in_thread(lambda: pool.step(np.zeros(1, np.float32)))
        gate.wait()
        before = look_at(os.getpid())
        # The thread may still be computing what it counts; it changes nothing while it waits at the gate.
        assert eventually(lambda: seen(before)["time"]["envs"] > 0.99)
        assert seen()["state"] == "stepping"
        gate.open(0)
        thread.join()
        assert seen()["time"]["envs"] > 0


def test_the_slowest_steps_of_threads_and_of_the_caller_are_kept() -> None:
    with GatedPool(4) as gated:
        assert {one["env"] for one in seen()["slow_envs"]} <= set(range(4))
        assert all(one["slowest_seconds"] > 50e-6 for one in seen()["slow_envs"])
        assert seen()["slow_envs"]
        assert gated.pool.stats()["step_cost_ns"] > 0


# ---- faults --------------------------------------------------------------------------------------


def test_failures_and_restarts_are_counted() -> None:
    with stepmill.make(FaultyEnv, num_envs=2, num_workers=2, backend="process", on_error="restart") as pool:
        pool.reset()
        old = worker_pids(pool)
        signal_to(old[1])
        assert ends(old[1])
        act(pool, 0, 1)
        act(pool, 0, 1)
        found = seen()
        assert (found["failures"], found["restarts"]) == (1, 1)
        assert [one["pid"] for one in found["workers"]] == worker_pids(pool)
        assert found["workers"][1]["pid"] != old[1]


def test_exceptions_of_envs_are_counted_too() -> None:
    with stepmill.make(FaultyEnv, num_envs=2, mishap="raise", backend="inline", on_error="restart") as pool:
        pool.reset()
        pool.step(np.zeros(2, np.float32))
        assert seen()["failures"] == 2
