"""Envs whose methods are coroutines go wrong, one after another in one event loop: no other env notices."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import EnvError, EnvTimeoutError, WorkerDiedError
from support import scribble
from support.envs import ProbeTwin
from support.envs.faulty import abnormal, act, collect, elapsed, outcome, send
from support.envs.waiting import RAISED, Sufferer, waiting
from support.processes import belongings, kill_worker, left_since, worker_pids
from support.subprocesses import run
from support.waiting import Gate

pytestmark = pytest.mark.usefixtures("deadline", "server")

# Four envs on two workers: 0 is the one that fails, 1 is in its event loop, the others are not.
N, FAULTY, NEIGHBOUR, OTHER = 4, 0, 1, 2
LIMIT = 0.3  # seconds: a deadline that an env is to miss


def make(mishap: str, folder: Any = "", *, env_ids: Any = (FAULTY,), num_envs: int = N, **arguments: Any) -> Any:
    """A pool of envs of which some suffer a mishap."""
    config = {key: arguments.pop(key) for key in ("where", "at") if key in arguments}
    well = {"folder": folder, "length": arguments.pop("length", 1000)}
    configs = [{**well, **config, "mishap": mishap} if i in env_ids else well for i in range(num_envs)]
    settings = {"num_workers": 2, "backend": "process", "batch_size": 1, **arguments}
    return stepmill.make(Sufferer, num_envs=num_envs, env_config=configs, **settings)


# ---- exceptions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mishap", RAISED)
@pytest.mark.parametrize("where", ["step", "reset"])
def test_what_a_coroutine_raises_is_its_envs_own(mishap: str, where: str) -> None:
    message, cause = RAISED[mishap]
    at = (2,)
    with make(mishap, where=where, at=at, length=1) as pool:
        pool.reset()
        pids = worker_pids(pool)
        act(pool)
        rows = act(pool)  # the episode is over: these are resets
        if where == "step":
            rows = act(pool)
        assert abnormal(rows) == [FAULTY]
        error = rows[FAULTY].error
        assert error is not None
        assert (error.env_id, error.phase) == (FAULTY, where)
        assert re.search(message, str(error))
        assert isinstance(error.__cause__, cause)
        assert abnormal(act(pool)) == []
        assert worker_pids(pool) == pids, "its worker lives on"


def test_a_task_that_exits_costs_nobody_anything(tmp_path: Path) -> None:
    with make("a task exits alone", tmp_path) as pool:
        pool.reset()
        pids = worker_pids(pool)
        assert abnormal(act(pool)) == []
        assert (tmp_path / "went on 0").exists()
        assert worker_pids(pool) == pids


@pytest.mark.parametrize("mishap", ["raise", "cancels itself", "sys.exit"])
def test_same_step_keeps_a_good_end_when_the_reset_after_it_fails(mishap: str) -> None:
    with make(mishap, where="reset", at=(2,), length=2, autoreset="same_step", batch_size=N) as pool:
        pool.reset()
        act(pool)
        (obs, reward, terminated, truncated, info), error = outcome(lambda: pool.step(np.full(N, 0.5)))
        assert error is not None
        assert (error.env_id, error.phase) == (FAULTY, "reset")
        assert info["abnormal"].tolist() == [True, False, False, False]
        assert (reward.tolist(), terminated.tolist(), truncated.any()) == ([0.5] * N, [True] * N, False)
        assert obs[FAULTY].tolist() == info["final_obs"][FAULTY].tolist()
        assert elapsed(act(pool)) == [0, 1, 1, 1]


def test_what_cannot_be_a_result_is_refused() -> None:
    class Wrong(ProbeTwin):
        async def step(self, action: Any) -> Any:
            return 1, 2, 3

    with stepmill.make(Wrong, backend="process") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=r"step: expected .* got a tuple of 3"):
            pool.step([0.0])


def test_a_call_that_raises_is_an_error_and_no_failure() -> None:
    with make("raise", where="visit") as pool:
        pool.reset()
        with pytest.raises(KeyError, match="broken"):
            pool.call("visit", 7, env_ids=[FAULTY])
        assert pool.call("visit", 7) == ((0, 7),) * N
        assert abnormal(act(pool)) == []


def test_a_close_that_raises_is_told_and_the_others_are_closed(tmp_path: Path) -> None:
    pool = make("raise", tmp_path, where="close")
    pool.reset()
    with pytest.raises(EnvError, match="KeyError: 'broken'") as caught:
        pool.close()
    assert caught.value.env_id == FAULTY
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed 1", "closed 2", "closed 3"]


# ---- deadlines -----------------------------------------------------------------------------------


def assert_late(row: Any, phase: str, *words: str) -> None:
    assert row.abnormal
    assert type(row.error) is EnvTimeoutError
    assert (row.error.env_id, row.error.phase) == (FAULTY, phase)
    for word in (f"{phase}_timeout={LIMIT:g} s", *words):
        assert word in str(row.error)


@pytest.mark.parametrize("mishap", ["forever", "forever, tidily", "swallows", "cannot be cancelled"])
def test_a_late_step_is_cancelled_and_its_worker_lives_on(tmp_path: Path, mishap: str) -> None:
    with make(mishap, tmp_path, step_timeout=LIMIT) as pool:
        pool.reset()
        pids = worker_pids(pool)
        rows = act(pool, FAULTY)
        where = ["It was here", "waiting.py", "wait_forever"] if mishap != "cannot be cancelled" else []
        assert_late(rows[FAULTY], "step", *where)
        assert (tmp_path / "tidy 0").exists() == (mishap == "forever, tidily")
        assert (act(pool, FAULTY)[FAULTY].elapsed, worker_pids(pool)) == (0, pids)
        assert pool.call("count_tasks", env_ids=[FAULTY]) == (0,)


def test_one_that_ignores_the_cancellation_costs_its_worker(gate: Gate) -> None:
    configs = [{"mishap": "deaf"}, {"mishap": "gate", "where": "reset", "at": (2,), "folder": gate.folder}, {}, {}]
    with stepmill.make(
        Sufferer,
        num_envs=N,
        num_workers=2,
        batch_size=1,
        env_config=[{**one, "length": 1} for one in configs],
        backend="process",
        step_timeout=LIMIT,
        reset_timeout=600,
    ) as pool:
        pool.reset()
        act(pool, NEIGHBOUR)
        send(pool, NEIGHBOUR)  # its reset waits at the gate when the worker goes
        assert gate.wait() == NEIGHBOUR
        pids = worker_pids(pool)
        send(pool, FAULTY)
        rows = collect(pool)
        assert_late(rows[FAULTY], "step", "did not end when it was cancelled")
        assert type(rows[NEIGHBOUR].error) is WorkerDiedError
        assert "because env 0, which it also ran, missed its deadline" in str(rows[NEIGHBOUR].error)
        assert abnormal(act(pool, OTHER)) == []
        gate.open(NEIGHBOUR)
        assert abnormal(act(pool, NEIGHBOUR)) == []
        assert worker_pids(pool)[1] == pids[1]


def test_resets_have_a_deadline_of_their_own() -> None:
    with make("forever", where="reset", at=(2,), length=1, reset_timeout=LIMIT, step_timeout=600) as pool:
        pool.reset()
        act(pool, FAULTY)
        assert_late(act(pool, FAULTY)[FAULTY], "reset", "wait_forever")
        assert act(pool, FAULTY)[FAULTY].elapsed == 0


def test_the_reset_inside_of_a_step_has_the_deadline_of_resets_and_the_end_stands() -> None:
    with make("forever", where="reset", at=(2,), length=1, reset_timeout=LIMIT, autoreset="same_step") as pool:
        pool.reset()
        row = act(pool, FAULTY)[FAULTY]
        assert_late(row, "reset", "wait_forever")
        assert (row.terminated, row.truncated, row.reward) == (True, False, 0.125)


def test_calls_have_the_deadline_of_steps() -> None:
    with make("forever", where="visit", step_timeout=LIMIT) as pool:
        pool.reset()
        pids = worker_pids(pool)
        with pytest.raises(EnvTimeoutError, match=f"step_timeout={LIMIT:g} s"):
            pool.call("visit", env_ids=[FAULTY])
        assert pool.call("visit", env_ids=[FAULTY]) == ((0, None),)
        assert worker_pids(pool) == pids


def test_who_waits_for_its_turn_is_not_late() -> None:
    class Slow(ProbeTwin):
        async def step(self, action: Any) -> Any:
            await asyncio.sleep(0.1)
            return super().step(action)

    backend = stepmill.Process(max_running=1)
    with stepmill.make(Slow, num_envs=20, backend=backend, step_timeout=1.5) as pool:  # of 2 seconds in all
        pool.reset()
        assert abnormal(act(pool)) == []


# ---- loops that stand still ----------------------------------------------------------------------


@pytest.fixture
def said(gate: Gate) -> Iterator[list[str]]:
    """The warnings so far. Each opens the gate of the faulty env."""
    texts: list[str] = []

    def show(message: Any, *_: Any, **__: Any) -> None:
        texts.append(str(message))
        gate.open(FAULTY)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield texts


def test_a_loop_that_is_blocked_is_named_while_others_go_on(gate: Gate, said: list[str]) -> None:
    with make("blocks", gate.folder) as pool:
        pool.reset()
        send(pool, FAULTY)
        assert gate.wait() == FAULTY
        send(pool, NEIGHBOUR)  # in the same loop
        assert abnormal(act_on_the_other(pool)) == []
        rows = collect(pool)
        assert (sorted(rows), abnormal(rows)) == ([FAULTY, NEIGHBOUR], [])
        (text,) = said
        assert "env 0 has blocked the event loop of worker 0 (pid " in text
        assert "in wait_at_gate" in text


def act_on_the_other(pool: Any) -> dict[int, Any]:
    """An env of the other worker steps; the rows of the first one are not waited for."""
    send(pool, OTHER)
    *_, info = pool.recv()
    assert info["env_id"].tolist() == [OTHER]
    return {}


def test_one_that_blocks_until_its_deadline_costs_its_worker(gate: Gate) -> None:
    with make("blocks", gate.folder, step_timeout=LIMIT) as pool:
        pool.reset()
        rows = act(pool, FAULTY)
        assert_late(rows[FAULTY], "step", "in wait_at_gate")
        assert abnormal(act(pool, OTHER)) == []


def test_a_stopped_worker_is_late() -> None:
    with make("stopped", step_timeout=LIMIT) as pool:
        pool.reset()
        assert_late(act(pool, FAULTY)[FAULTY], "step", "Its process is stopped")
        assert abnormal(act(pool, FAULTY)) == []


# ---- tasks ---------------------------------------------------------------------------------------


def test_tasks_end_with_the_episode_but_for_those_of_a_context_of_their_own(tmp_path: Path) -> None:
    with make("tasks", tmp_path, length=1) as pool:
        pool.reset()
        act(pool, FAULTY)
        assert pool.call("visit", env_ids=[FAULTY]) == ((1, None),)  # the loop has come around
        assert (tmp_path / "cancelled 0").exists()
        assert not (tmp_path / "cancelled though of its own 0").exists()
        act(pool, FAULTY)
        assert not (tmp_path / "cancelled though of its own 0").exists()
    assert (tmp_path / "cancelled though of its own 0").exists(), "all of them end with the worker"


PROGRAM = """
import sys
import stepmill
from support.envs.waiting import Sufferer

configs = [{"mishap": "tasks", "at": range(1, 9), "length": 1}] * 2
with stepmill.make(Sufferer, num_envs=2, num_workers=1, env_config=configs, backend="process") as pool:
    pool.reset()
    for _ in range(6):
        pool.step([0.0, 0.0])
    pool.call("visit")
"""


def test_they_are_named_once() -> None:
    finished = run(PROGRAM)
    assert finished.code == 0, finished
    assert finished.err.count("was cancelled: leave_tasks_behind.<locals>.linger") == 1, finished.err


# ---- how many run --------------------------------------------------------------------------------


class Counted(ProbeTwin):
    """Tells how many envs of the pool were at work while it was: each has a byte in a file."""

    def __init__(self, file: str, env_id: int) -> None:
        super().__init__()
        self._bytes = np.memmap(file, np.uint8, "r+")
        self._mine = self._bytes[env_id : env_id + 1]

    async def step(self, action: Any) -> Any:
        self._mine[:] = 1
        most = 0
        for _ in range(5):
            most = max(most, int(self._bytes.sum()))
            await asyncio.sleep(0)
        self._mine[:] = 0
        *rest, _ = super().step(action)
        return *rest, {"at_work": most}


@pytest.mark.parametrize("max_running", [2, 5])
@pytest.mark.parametrize("batch_size", [12, 3])
def test_no_more_run_than_may_and_all_get_their_turn(tmp_path: Path, max_running: int, batch_size: int) -> None:
    file = tmp_path / "at work"
    file.write_bytes(bytes(12))
    backend = stepmill.Process(max_running=max_running)
    with stepmill.make(
        Counted, num_envs=12, num_workers=2, batch_size=batch_size, backend=backend, file=str(file)
    ) as pool:
        pool.reset()
        most = []
        for _ in range(5):
            send(pool)
            while pool.in_flight:
                most += pool.recv()[4]["at_work"].tolist()
        assert len(most) == 60
        assert max(most) <= max_running
        assert max_running == 2 or max(most) > 1


# ---- the end -------------------------------------------------------------------------------------


def test_close_ends_what_is_under_way_and_leaves_nothing(tmp_path: Path) -> None:
    before = belongings()
    pool = make("forever, tidily", tmp_path, env_ids=range(64), num_envs=64)
    pool.reset()
    send(pool)
    pool.close()
    assert left_since(before) == []


def test_a_fork_in_a_coroutine_is_no_second_worker() -> None:
    class Forking(ProbeTwin):
        async def step(self, action: Any) -> Any:
            await asyncio.sleep(0)
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
            await asyncio.sleep(0)
            return super().step(action)

    with stepmill.make(Forking, num_envs=2, num_workers=1, backend="process") as pool:
        pool.reset()
        for count in (1, 2):
            assert elapsed(act(pool)) == [count] * 2


# ---- kills ---------------------------------------------------------------------------------------


class Restless(ProbeTwin):
    """Every tenth raises, hangs or cancels itself, in turns; the others wait for a little."""

    def __init__(self, env_id: int, wait: float = 0.002) -> None:
        super().__init__(7)
        self._count, self._wait = env_id, wait

    async def step(self, action: Any) -> Any:
        self._count += 1
        fate = self._count % 10
        if fate == 0:
            raise KeyError("its turn")
        if fate == 1:
            await asyncio.get_running_loop().create_future()
        if fate == 2:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        await asyncio.sleep(self._wait * (self._count % 3))
        return super().step(action)

    def count_tasks(self) -> int:
        return len(asyncio.all_tasks())


def soak(num_envs: int, turns: int, kills: int, **arguments: Any) -> tuple[int, int]:
    """Every action has one row, whatever happens to its worker. Returns how many there were, and how many abnormal."""
    random = np.random.default_rng(num_envs)
    count = marked = 0
    with stepmill.make(Restless, num_envs=num_envs, num_workers=2, backend="process", **arguments) as pool:
        in_flight = set(range(num_envs))
        pool.async_reset()
        sent = num_envs
        kill_at = sorted(random.integers(num_envs, turns * num_envs, kills).tolist())
        while in_flight:
            (*_, info), error = outcome(pool.recv)
            ids = info["env_id"].tolist()
            failed = info.get("abnormal", np.zeros(len(ids), bool))
            assert len(set(ids)) == len(ids)
            assert in_flight.issuperset(ids), "a row that nothing was sent for"
            assert sorted(one.env_id for one in error.errors) == sorted(np.array(ids)[failed]) if error else True
            in_flight.difference_update(ids)
            count += len(ids)
            marked += int(failed.sum())
            if kill_at and count >= kill_at[0]:
                with contextlib.suppress(AssertionError, ProcessLookupError):  # one is being replaced: later
                    kill_worker(pool, int(random.integers(2)))
                    del kill_at[0]
            again = ids[: turns * num_envs - sent]
            if again:
                pool.send(np.zeros(len(again)), again)
                in_flight.update(again)
                sent += len(again)
        assert (count, kill_at) == (turns * num_envs, [])
        outcome(pool.reset)  # a worker that was killed at the very end is replaced
        assert pool.call("count_tasks", env_ids=[0, num_envs - 1]) == (0, 0)
    return count, marked


def test_every_action_has_one_row_whatever_dies() -> None:
    before = belongings()
    count, marked = soak(60, 12, 5, batch_size=13, step_timeout=LIMIT)
    assert marked > 60, "there was something to survive"
    assert count == 720
    assert left_since(before) == []


@pytest.mark.slow
def test_eight_thousand_envs_of_which_every_third_fails() -> None:
    before = belongings()
    _, marked = soak(8192, 6, 2, batch_size=1024, step_timeout=4.0, wait=0.1)
    assert marked > 8192
    assert left_since(before) == []


@pytest.mark.slow
def test_envs_that_write_wildly_cost_rows_and_never_hang_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scribble, "Scribbler", waiting(scribble.Scribbler))
    assert len([*scribble.trials(1, 40, 3)]) == len(scribble.MODES)
