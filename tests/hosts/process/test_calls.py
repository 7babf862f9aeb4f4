"""Calls of envs in worker processes: their results, their failures, and waiting for steps that run."""

from __future__ import annotations

import os
from typing import Any

import pytest

import stepmill
from stepmill import EnvError, errors
from support.envs.faulty import FaultyEnv, abnormal, act, collect, elapsed, send
from support.processes import kill_worker, worker_pids
from support.waiting import Gate, ends, in_thread, struck_inside, wait_until_inside

pytestmark = pytest.mark.usefixtures("deadline", "server")


# Seconds: long enough for every healthy step on a busy machine, short enough to wait for.
SHORT = 0.4
N = 4  # envs on two workers: 0 and 1, 2 and 3


# Each way to reach into an env: the place where its mishap strikes, and the call.
REACHES: dict[str, Any] = {
    "visit": lambda pool, ids: pool.call("visit", env_ids=ids),
    "get": lambda pool, ids: pool.get_attr("trap", ids),
    "set": lambda pool, ids: pool.set_attr("trap", 1, ids),
    "render": lambda pool, ids: pool.render(ids),
}
REACHED = pytest.mark.parametrize("where", REACHES)
PHASES = {"visit": "call", "get": "get_attr", "set": "set_attr", "render": "render"}  # as errors name them


def test_calls_reach_the_envs_that_were_asked_for(make: Any) -> None:
    pool = make({})
    pool.reset()
    act(pool, 1, 2)
    act(pool, 2)
    assert pool.call("visit", {"any": [1, None]}) == tuple((steps, {"any": [1, None]}) for steps in (0, 1, 2, 0))
    assert pool.get_attr("trap", [2, 0]) == (2, 0)
    pool.set_attr("noted", [5, 6], [3, 1])
    assert pool.get_attr("noted", [1, 3]) == (6, 5)
    assert [int(frame.max()) for frame in pool.render([2, 1])] == [2, 1]
    assert len(set(pool.call("process"))) == 2
    assert os.getpid() not in pool.call("process")


@pytest.mark.parametrize(
    ("where", "mishap", "error"),
    [
        *((where, "raise", KeyError) for where in REACHES),
        *((where, mishap, Exception) for where in ("visit", "render") for mishap in ("unpicklable", "broken text")),
    ],
)
def test_an_exception_in_a_call_is_the_callers_and_harms_nothing(
    make: Any, where: str, mishap: str, error: type[Exception]
) -> None:
    pool = make({2: mishap}, where=where)
    pool.reset()
    act(pool)
    if where == "render":
        with pytest.raises(EnvError, match="env 2 failed in render") as failed:
            pool.render()
        assert (failed.value.env_id, failed.value.phase) == (2, "render")
        raised = failed.value.__cause__
    else:
        with pytest.raises(error) as caught:
            REACHES[where](pool, None)
        raised = caught.value
    assert isinstance(raised, error)
    assert "in _suffer" in "".join(raised.__notes__)
    REACHES[where](pool, None)  # once was enough
    rows = act(pool)
    assert elapsed(rows) == [2] * N
    assert not any(row.abnormal for row in rows.values())


def test_sys_exit_in_a_call_ends_no_process(make: Any) -> None:
    pool = make({2: "sys.exit"}, where="visit")
    pids = worker_pids(pool)
    with pytest.raises(BaseException, match="broken") as caught:
        pool.call("visit")
    assert isinstance(caught.value, EnvError | SystemExit)
    assert pool.call("process", env_ids=[0, 2]) == tuple(pids)


@REACHED
def test_a_worker_that_dies_in_a_call_is_told_and_replaced(make: Any, where: str) -> None:
    pool = make({2: "exit"}, where=where)
    pool.reset()
    act(pool)
    with pytest.raises(errors.WorkerDiedError, match=r"env 2 failed in .*exited with code 7") as caught:
        REACHES[where](pool, [0, 2])
    assert (caught.value.env_id, caught.value.phase) == (2, PHASES[where])
    rows = act(pool)
    assert abnormal(rows) == [2, 3], "they were lost: their episodes end"
    assert elapsed(act(pool)) == [3, 3, 0, 0]


def test_a_result_stands_though_the_worker_dies_in_a_call_before_it_is_received(make: Any) -> None:
    pool = make({2: "exit"}, where="visit")
    with stepmill.make(FaultyEnv, num_envs=N, backend="inline") as well:
        pool.reset()
        well.reset()
        expected = act(well)
        send(pool)
        with pytest.raises(errors.WorkerDiedError):
            pool.call("visit", env_ids=[3, 2])
        rows = collect(pool)
        assert [rows[i] for i in (0, 1, 2)] == [expected[i] for i in (0, 1, 2)]
        assert rows[3] == expected[3]
        rows = act(pool)
        assert abnormal(rows) == [2, 3]


def test_an_env_whose_worker_is_gone_cannot_be_called_until_it_is_reset(make: Any) -> None:
    pool = make({})
    pool.reset()
    pid = kill_worker(pool, 1)
    assert ends(pid)
    with pytest.raises(errors.WorkerDiedError, match="env 2"):
        pool.call("visit", env_ids=[2])
    assert pool.call("visit", env_ids=[0]) == ((0, None),)
    assert act(pool, 2)[2].abnormal
    assert act(pool, 2)[2].elapsed == 0
    assert pool.call("visit", env_ids=[2]) == ((0, None),)


@pytest.mark.parametrize("where", ["visit", "render"])
def test_a_call_that_hangs_is_ended_at_step_timeout(make: Any, where: str) -> None:
    pool = make({2: "loop"}, where=where, step_timeout=SHORT)
    pool.reset()
    act(pool)
    with pytest.raises(errors.EnvTimeoutError, match="env 2 failed in ") as caught:
        REACHES[where](pool, [0, 2])
    assert "in spin_forever" in str(caught.value)
    assert caught.value.phase == PHASES[where]
    rows = act(pool)
    assert abnormal(rows) == [2, 3]
    assert elapsed(act(pool)) == [3, 3, 0, 0]


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
def test_a_call_waits_for_the_step_that_runs(make: Any, gate: Gate, batch_size: int) -> None:
    pool = make({2: "gate"}, batch_size=batch_size)
    pool.reset()
    send(pool)
    assert gate.wait() == 2
    answers: list[Any] = []
    thread = in_thread(lambda: answers.append(pool.call("visit", "word", env_ids=[2])))
    wait_until_inside(pool)
    assert not answers
    gate.open(2)
    thread.join()
    assert answers == [((1, "word"),)], "the step was done"
    rows = collect(pool)
    assert elapsed(rows) == [1] * N


def test_other_envs_can_be_called_while_one_is_stuck(make: Any, gate: Gate) -> None:
    pool = make({2: "gate"})
    pool.reset()
    send(pool, 2)
    assert gate.wait() == 2
    assert pool.call("visit", env_ids=[0, 1]) == ((0, None), (0, None))
    assert pool.stats()["in_flight"] == 1
    gate.open(2)
    assert collect(pool)[2].elapsed == 1


def test_a_result_that_cannot_be_pickled_is_an_error_that_says_so(make: Any) -> None:
    class Holding(FaultyEnv):
        def lock(self) -> Any:
            import threading

            return threading.Lock()

    with stepmill.make(Holding, num_envs=2, backend="process") as pool:
        with pytest.raises(errors.UnsupportedError, match=r"'lock' of env 0.*cannot be pickled.*call itself was made"):
            pool.call("lock")
        assert pool.call("visit", lambda: 4)[1][1]() == 4, "code can travel"


def test_an_argument_that_cannot_be_pickled_changes_nothing(make: Any, gate: Gate) -> None:
    pool = make({})
    with open(gate.folder / "file", "w") as file, pytest.raises(Exception, match="pickle"):
        pool.call("visit", file)
    assert pool.call("visit", 1, env_ids=[0]) == ((0, 1),)


def test_ctrl_c_in_a_call_leaves_a_usable_pool(make: Any, gate: Gate) -> None:
    pool = make({2: "gate"}, where="visit")
    pool.reset()
    with struck_inside(pool, gate):
        pool.call("visit")
    gate.open(2)
    assert pool.call("visit", "again") == ((0, "again"),) * N
    rows = act(pool)
    assert elapsed(rows) == [1] * N
    assert pool.call("visit", "later") == ((1, "later"),) * N


def test_ctrl_c_in_a_call_does_not_mix_up_the_results_that_follow(make: Any, gate: Gate) -> None:
    pool = make({2: "gate, then exit"}, where="visit")
    pool.reset()
    with struck_inside(pool, gate):
        pool.call("visit", env_ids=[2])
    gate.open(2)  # the worker dies in the call that nobody waits for
    rows = act(pool)
    assert abnormal(rows) == [2, 3]
    assert elapsed(act(pool)) == [2, 2, 0, 0]
    assert pool.call("process", env_ids=[2]) == (worker_pids(pool)[1],)
