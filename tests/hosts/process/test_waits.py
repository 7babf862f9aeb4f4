"""Envs that do not come back: deadlines, calls, Ctrl-C. Gates hold the envs; nothing sleeps."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.envs.faulty import STUCK, FaultyEnv, abnormal, act, collect, elapsed, send
from support.processes import belongings, kill_worker, left_since, signal_to, worker_pids
from support.subprocesses import start
from support.waiting import Gate, GateClock, ends, struck_inside

pytestmark = pytest.mark.usefixtures("deadline", "server")


# Seconds: long enough for every healthy step on a busy machine, short enough to wait for.
SHORT = 0.4
LONGER = 0.8
N = 4  # envs on two workers: 0 and 1, 2 and 3


# ---- step_timeout --------------------------------------------------------------------------------


@pytest.mark.parametrize(("mishap", "on_error"), [*((mishap, "raise") for mishap in STUCK), ("loop", "restart")])
def test_a_stuck_step_is_ended_at_its_deadline(make: Any, mishap: str, on_error: str) -> None:
    pool = make({2: mishap}, at=[2], step_timeout=SHORT, on_error=on_error)
    with stepmill.make(FaultyEnv, num_envs=N, backend="inline") as well:
        pool.reset()
        well.reset()
        before, expected = act(pool), act(well)
        assert before == expected
        pid = worker_pids(pool)[1]
        rows, expected = act(pool, 0, 1, 2), act(well)
        row = rows[2]
        assert (row.abnormal, row.truncated, row.terminated, row.reward) == (True, True, False, 0.0)
        assert row.obs == (before[2].obs if on_error == "restart" else [0.0, 0.0])
        assert (row.error is None) == (on_error == "restart")
        assert [rows[i] for i in (0, 1)] == [expected[i] for i in (0, 1)]
        assert ends(pid)
        if error := row.error:
            assert isinstance(error, errors.EnvTimeoutError)
            assert isinstance(error, TimeoutError)
            assert (error.env_id, error.phase, error.episode, error.step) == (2, "step", 1, 1)
            assert f"step_timeout={SHORT}" in str(error)
            assert f"in {STUCK[mishap]}" in str(error), "the stack of the worker"
            assert "in step" in str(error)
        rows = act(pool, 3)
        assert rows[3].abnormal
        if error := rows[3].error:
            assert isinstance(error, errors.WorkerDiedError)
            assert "env 2, which it also ran, missed its deadline" in str(error)
        assert elapsed(act(pool)) == [3, 3, 0, 0]
        assert elapsed(act(pool)) == [4, 4, 1, 1]


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
def test_neighbours_of_a_stuck_env_that_were_in_flight_come_back_abnormal(
    make: Any, gate: Gate, batch_size: int
) -> None:
    pool = make({2: "gate"}, step_timeout=SHORT, batch_size=batch_size)
    pool.reset()
    send(pool, 2)
    assert gate.wait() == 2
    send(pool, 0, 1, 3)
    rows = collect(pool)
    assert abnormal(rows) == [2, 3]
    assert isinstance(rows[2].error, errors.EnvTimeoutError)
    assert isinstance(rows[3].error, errors.WorkerDiedError)


def test_two_workers_stuck_at_once_are_told_apart(make: Any) -> None:
    pool = make({0: "loop", 3: "C without the lock"}, num_workers=N, step_timeout=SHORT)
    pool.reset()
    rows = act(pool)
    assert abnormal(rows) == [0, 3]
    assert "spin_forever" in str(rows[0].error)
    assert "hash_forever" in str(rows[3].error)


@pytest.mark.parametrize("from_outside", [False, True])
def test_a_stopped_worker_misses_its_deadline_and_says_so(make: Any, gate: Gate, from_outside: bool) -> None:
    pool = make({2: "gate" if from_outside else "stopped"}, step_timeout=SHORT)
    pool.reset()
    send(pool, 0, 1, 2)
    pid = worker_pids(pool)[1]
    if from_outside:
        assert gate.wait() == 2
        signal_to(pid, signal.SIGSTOP)
    rows = collect(pool)
    assert abnormal(rows) == [2]
    assert isinstance(rows[2].error, errors.EnvTimeoutError)
    assert "stopped" in str(rows[2].error)
    assert ends(pid)
    assert act(pool, 2)[2].elapsed == 0


def test_a_worker_that_is_stopped_and_goes_on_in_time_is_not_harmed(make: Any, gate: Gate) -> None:
    pool = make({2: "gate"})
    pool.reset()
    send(pool)
    assert gate.wait() == 2
    pid = worker_pids(pool)[1]
    signal_to(pid, signal.SIGSTOP)
    gate.open(2)
    with pytest.raises(errors.RecvTimeoutError):
        pool.recv(timeout=0.05)
    signal_to(pid, signal.SIGCONT)
    assert not any(row.abnormal for row in collect(pool).values())
    assert worker_pids(pool)[1] == pid


# ---- which deadline ------------------------------------------------------------------------------


def test_a_stuck_reset_is_ended_at_its_deadline(make: Any) -> None:
    pool = make({2: "gate"}, where="reset", reset_timeout=SHORT, num_workers=N)
    with pytest.raises(errors.EnvTimeoutError, match=rf"env 2 failed in reset .*reset_timeout={SHORT}") as caught:
        pool.reset()
    assert "in wait_at_gate" in str(caught.value)
    assert (caught.value.env_id, caught.value.phase) == (2, "reset")
    assert caught.value.batch[1]["abnormal"].tolist() == [False, False, True, False]


def test_a_reset_that_autoreset_runs_has_the_deadline_of_resets(make: Any) -> None:
    pool = make({2: "loop"}, where="reset", at=[2], length=1, reset_timeout=SHORT, num_workers=N)
    pool.reset()
    assert act(pool)[2].terminated
    error = act(pool)[2].error
    assert isinstance(error, errors.EnvTimeoutError)
    assert error.phase == "reset"


def test_a_step_is_not_bound_by_reset_timeout(make: Any, gate: Gate) -> None:
    pool = make({2: "gate"}, reset_timeout=SHORT)
    pool.reset()
    send(pool, 2)
    assert gate.wait() == 2
    with pytest.raises(errors.RecvTimeoutError):
        pool.recv(timeout=LONGER)
    gate.open(2)
    assert not collect(pool)[2].abnormal


def test_neither_a_reset_nor_waiting_for_ones_turn_is_bound_by_step_timeout(make: Any, gate: Gate) -> None:
    pool = make({2: "gate"}, where="reset", at=[2], length=1, step_timeout=SHORT)
    pool.reset()
    assert act(pool, 2)[2].terminated
    send(pool, 2)  # resets, without a deadline
    assert gate.wait() == 2
    send(pool, 3)
    with pytest.raises(errors.RecvTimeoutError):
        pool.recv(timeout=LONGER)
    gate.open(2)
    rows = collect(pool)
    assert (rows[2].abnormal, rows[3].abnormal, rows[3].elapsed) == (False, False, 1)


def test_the_reset_inside_an_ending_step_is_not_bound_by_step_timeout(make: Any, gate: Gate) -> None:
    pool = make({2: "gate"}, where="reset", at=[2], length=1, step_timeout=SHORT, autoreset="same_step")
    pool.reset()
    send(pool, 2)
    assert gate.wait() == 2
    with pytest.raises(errors.RecvTimeoutError):
        pool.recv(timeout=LONGER)
    gate.open(2)
    rows = collect(pool)
    assert (rows[2].abnormal, rows[2].terminated, rows[2].elapsed) == (False, True, 0)


def test_the_reset_inside_an_ending_step_is_bound_by_reset_timeout(make: Any) -> None:
    pool = make({2: "loop"}, where="reset", at=[2], length=1, reset_timeout=SHORT, autoreset="same_step")
    pool.reset()
    send(pool, 2)
    with pytest.raises(errors.EnvTimeoutError, match=f"env 2 failed in reset .*reset_timeout={SHORT}") as caught:
        pool.recv()
    _, reward, terminated, truncated, info = caught.value.batch
    assert info["abnormal"].tolist() == [True]
    assert (reward.tolist(), terminated.tolist(), truncated.tolist()) == ([3 / 8], [True], [False]), "the end stands"
    assert act(pool, 2)[2].elapsed == 0


# ---- start_timeout -------------------------------------------------------------------------------


def test_an_endless_constructor_is_ended_at_the_start_timeout(
    make: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    GateClock.put(monkeypatch, gate)
    before = belongings()
    with pytest.raises(errors.EnvTimeoutError, match=rf"start_timeout={LONGER}.* env 3 is still being built") as caught:
        make({3: "C with the lock"}, where="constructor", start_timeout=LONGER)
    assert "in count_forever" in str(caught.value)
    assert (caught.value.env_id, caught.value.phase) == (3, "constructor")
    assert isinstance(caught.value, TimeoutError)
    assert left_since(before) == []


def test_every_env_that_is_still_being_built_is_named(make: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    GateClock.put(monkeypatch, gate, arrivals=2)
    with pytest.raises(errors.EnvTimeoutError, match=r"envs 0, 2 are still being built") as caught:
        make({0: "loop", 2: "C without the lock"}, where="constructor", start_timeout=LONGER)
    assert "spin_forever" in str(caught.value)
    assert "hash_forever" in str(caught.value)


def test_an_endless_constructor_at_a_restart_is_ended_at_the_start_timeout(make: Any, gate: Gate) -> None:
    told = gate.folder / "mishap"
    told.write_text("")
    pool = make({2: ""}, where="constructor", start_timeout=2.0)
    pool.reset()
    told.write_text("loop")
    kill_worker(pool, 1)
    assert abnormal(act(pool, 2, 3)) == [2, 3]
    rows = act(pool)
    assert abnormal(rows) == [2, 3]
    for env_id in (2, 3):
        error = rows[env_id].error
        assert isinstance(error, errors.EnvTimeoutError)
        assert error.phase == "constructor"
        assert "start_timeout" in str(error)
        assert "in spin_forever" in str(error)
    told.write_text("")
    assert elapsed(act(pool)) == [2, 2, 0, 0]


# ---- recv that does not wait for ever ------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [N, 3], ids=["sync", "async"])
def test_a_timeout_of_recv_loses_nothing_and_can_be_repeated(make: Any, gate: Gate, batch_size: int) -> None:
    pool = make({1: "gate", 2: "gate"}, num_workers=N, batch_size=batch_size)
    pool.reset()
    send(pool)
    assert {gate.wait(), gate.wait()} == {1, 2}
    for timeout in (0.0, 0.01, 0.01):
        with pytest.raises(errors.RecvTimeoutError, match="stay in flight"):
            pool.recv(timeout=timeout)
        assert pool.stats()["in_flight"] == N
    gate.open(1)
    gate.open(2)
    rows = collect(pool)
    assert sorted(rows) == list(range(N))
    assert not any(row.abnormal for row in rows.values())


def test_async_recv_does_not_wait_for_a_stuck_env(make: Any, gate: Gate) -> None:
    pool = make({0: "gate"}, batch_size=2, num_workers=N)
    pool.reset()
    send(pool)
    assert gate.wait() == 0
    for _ in range(10):  # it is at the gate all the while
        ids = pool.recv()[4]["env_id"]
        assert 0 not in ids
        pool.send(np.zeros(2), ids)
    gate.open(0)
    assert sorted(collect(pool)) == list(range(N))


@pytest.mark.parametrize("stuck", range(N))
def test_by_default_a_stuck_env_of_a_small_async_pool_holds_no_other_back(
    make: Any, gate: Gate, monkeypatch: pytest.MonkeyPatch, stuck: int
) -> None:
    monkeypatch.setattr("stepmill._native.available_cores", lambda: 2)
    pool = make({stuck: "gate"}, batch_size=1, num_workers=None)
    pool.reset()
    send(pool, stuck)
    assert gate.wait() == stuck
    for steps in range(1, 4):  # it is at the gate all the while
        for env_id in range(N):
            if env_id != stuck:
                send(pool, env_id)
                info = pool.recv()[4]
                assert (info["env_id"].tolist(), info["elapsed_step"].tolist()) == ([env_id], [steps])
    gate.open(stuck)
    assert elapsed(collect(pool)) == [1]


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
def test_an_interrupted_recv_leaves_the_actions_in_flight(make: Any, gate: Gate, batch_size: int) -> None:
    stuck = range(N) if batch_size == 2 else [2]
    pool = make(dict.fromkeys(stuck, "gate"), num_workers=N, batch_size=batch_size)
    pool.reset()
    send(pool)
    assert {gate.wait() for _ in stuck} == set(stuck)
    for _ in range(2):
        with struck_inside(pool):
            pool.recv()
        assert pool.stats()["in_flight"] == N
    for env_id in stuck:
        gate.open(env_id)
    rows = collect(pool)
    assert elapsed(rows) == [1] * N
    assert not any(row.abnormal for row in rows.values())


def test_an_interrupted_step_is_drained_by_reset(make: Any, gate: Gate) -> None:
    pool = make({2: "gate"})
    pool.reset()
    with struck_inside(pool):
        pool.step(np.zeros(N))
    assert gate.wait() == 2
    with struck_inside(pool):
        pool.reset()  # waits for the steps that it drains
    gate.open(2)
    obs, info = pool.reset()
    assert (obs[:, 1].tolist(), info["elapsed_step"].tolist()) == ([0.0] * N, [0] * N)
    assert pool.stats()["in_flight"] == 0
    assert elapsed(act(pool)) == [1] * N


def test_an_interrupted_recv_sees_a_death_later(make: Any, gate: Gate) -> None:
    pool = make({2: "gate, then exit"})
    pool.reset()
    send(pool, 0, 1, 2)
    with struck_inside(pool):
        pool.recv()
    gate.open(2)
    rows = collect(pool)
    assert abnormal(rows) == [2]


def test_ctrl_c_in_a_terminal_reaches_the_caller_and_no_worker(tmp_path: Path) -> None:
    with start(
        f"""
        from pathlib import Path
        from support.envs.faulty import *
        from support.processes import *
        from support.waiting import *
        import stepmill
        gate = Gate(Path({str(tmp_path)!r}), 2)
        pool = stepmill.make(FaultyEnv, num_envs=2, num_workers=2, backend="process", mishap="gate", folder=gate.folder)
        pool.reset()
        pids = worker_pids(pool)
        send(pool)
        at_gate = sorted([gate.wait(), gate.wait()])
        try:
            print(at_gate, flush=True)
            pool.recv()
        except KeyboardInterrupt:
            print("interrupted", pool.stats()["in_flight"])
        gate.open(0), gate.open(1)
        print([row.elapsed for row in collect(pool).values()], worker_pids(pool) == pids)
        pool.close()
        """
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "[0, 1]\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate()
    assert (out.splitlines(), err) == (["interrupted 2", "[1, 1] True"], "")
