"""Saves and restores that something ends: a signal handler, another thread, a fork, the death of a worker.

An env has its old state afterwards or its new one, and so have all envs of the call.
"""

from __future__ import annotations

import functools
import gc
import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.hosts.process import process_host
from support.envs import ProbeTwin
from support.injection import Alarms, at_every_point
from support.probes import GatedPool, assert_same
from support.processes import belongings, kill_worker, resident_bytes, signal_to, worker_pids
from support.subprocesses import run_well
from support.waiting import in_thread, wait_until_inside

KINDS: dict[str, tuple[Any, dict[str, Any], str | None]] = {
    "native": ("Probe-v0", {"backend": "thread"}, None),
    "native-process": ("Probe-v0", {"backend": "process", "num_workers": 2}, None),
    "methods": (ProbeTwin, {"backend": "inline"}, None),
    "methods-process": (ProbeTwin, {"backend": "process", "num_workers": 2}, None),
    "pickle": (ProbeTwin, {"backend": "inline"}, "pickle"),
    "pickle-process": (ProbeTwin, {"backend": "process", "num_workers": 2}, "pickle"),
}
IN_PROCESSES = [kind for kind in KINDS if kind.endswith("process")]


def step(pool: Any, times: int = 1) -> Any:
    for _ in range(times):
        shown = pool.step(np.full(pool.num_envs, 0.5, np.float32))
    return shown


def content(states: stepmill.SavedStates) -> list[bytes]:
    return [bytes(one) for one in states]


# ---- signals -------------------------------------------------------------------------------------

# A call has up to two thousand points at which a handler can raise.
STRIDES = pytest.mark.parametrize("stride", [211, pytest.param(1, marks=pytest.mark.long)])


# A generator that is dropped half-way is told so by an exception: the alarm there is no place for a real handler.
UNRAISABLE = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def at_points(attempt: Any, stride: int) -> int:
    return at_every_point(attempt, __file__, raising=KeyboardInterrupt, stride=stride)


class Stubborn(ProbeTwin):
    """Does not take a state any more once it was told so, and is half changed then."""

    refuses = False

    def set_state(self, state: Any) -> None:
        if self.refuses and state[1] != 7:
            self._draw = -1.0
            raise ValueError("not this one")
        super().set_state(state)


@UNRAISABLE
@STRIDES
@pytest.mark.parametrize("kind", KINDS)
def test_a_restore_is_done_or_not_wherever_a_handler_raises(kind: str, stride: int) -> None:
    task, settings, by = KINDS[kind]
    with stepmill.make(task, num_envs=2, length=1000, **settings) as pool:
        pool.reset()
        step(pool, 3)
        old = pool.save(by=by)
        step(pool, 4)
        new = pool.save(by=by)
        contents = []
        for states in (old, new):  # what is unpickled may be pickled otherwise: a string that was one is two
            pool.restore(states)
            contents.append(content(pool.save()))
        outcomes = set()

        def attempt(alarms: Alarms) -> None:
            pool.restore(new)
            try:
                with alarms:
                    pool.restore(old)
            except KeyboardInterrupt:
                if pool.stats()["in_flight"]:
                    assert pool.recv()[4]["elapsed_step"].tolist() == [3] * 2
            outcomes.add(contents.index(content(pool.save())))
            assert step(pool)[4]["elapsed_step"].tolist() in ([4] * 2, [8] * 2)

        assert at_points(attempt, stride) > 0
        assert 0 in outcomes
        assert stride > 1 or 1 in outcomes


@UNRAISABLE
@pytest.mark.parametrize(
    ("backend", "stride"), [("process", 1), ("inline", 211), pytest.param("inline", 1, marks=pytest.mark.long)]
)
def test_a_restore_that_fails_is_taken_back_wherever_a_handler_raises(backend: str, stride: int) -> None:
    workers = {"num_workers": 3} if backend == "process" else {}
    with stepmill.make(Stubborn, num_envs=3, length=1000, backend=backend, **workers) as pool:
        pool.reset()
        step(pool, 3)
        old = pool.save()
        step(pool, 4)
        new = content(pool.save())
        pool.set_attr("refuses", [False, True, False])

        def attempt(alarms: Alarms) -> None:
            with pytest.raises((KeyboardInterrupt, errors.StateError)), alarms:
                pool.restore(old)
            assert content(pool.save()) == new

        assert at_points(attempt, stride) > 20


@UNRAISABLE
@STRIDES
@pytest.mark.parametrize("kind", KINDS)
def test_a_save_changes_nothing_wherever_a_handler_raises(kind: str, stride: int) -> None:
    task, settings, by = KINDS[kind]
    with stepmill.make(task, num_envs=2, length=1000, **settings) as pool:
        pool.reset()
        step(pool, 3)
        expected = content(pool.save(by=by))

        def attempt(alarms: Alarms) -> None:
            try:
                with alarms:
                    found = pool.save(by=by)
                assert content(found) == expected
            except KeyboardInterrupt:
                assert pool.in_flight == []

        assert at_points(attempt, stride) > 0
        assert content(pool.save(by=by)) == expected
        assert step(pool)[4]["elapsed_step"].tolist() == [4] * 2


# ---- threads and forks ---------------------------------------------------------------------------


def test_a_second_thread_neither_saves_nor_restores() -> None:
    with GatedPool(3, batch_size=2) as gated:
        pool = gated.pool
        states = pool.save([0])
        before = content(pool.save())
        pool.send(np.zeros(2, np.float32), [1, 2])
        thread = in_thread(pool.recv)
        wait_until_inside(pool)
        for call in (lambda: pool.save([0]), lambda: pool.restore(states, [0]), lambda: pool.fork(0, [0])):
            with pytest.raises(errors.ConcurrentUseError, match="another thread"):
                call()
        gated.open(2)
        thread.join()
        assert content(pool.save([0])) == before[:1]


@pytest.mark.parametrize("call", ["get_state", "set_state"])
def test_an_env_cannot_use_the_pool_that_saves_it(call: str) -> None:
    class Reaching(ProbeTwin):
        reaches = ""

        def get_state(self) -> Any:
            if self.reaches == "get_state":
                pool.step([0.0, 0.0])
            return super().get_state()

        def set_state(self, state: Any) -> None:
            if self.reaches == "set_state" and self._steps:
                self._steps = 0
                pool.save()
            super().set_state(state)

    with stepmill.make(Reaching, num_envs=2, backend="inline") as pool:
        pool.reset()
        states = pool.save()
        step(pool)
        before = content(pool.save())
        pool.set_attr("reaches", [call, ""])
        with pytest.raises(errors.StateError, match=r"env 0: .*raised ConcurrentUseError: this thread is already"):
            pool.save() if call == "get_state" else pool.restore(states)
        pool.set_attr("reaches", "")
        assert content(pool.save()) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_neither_saves_nor_restores(kind: str) -> None:
    task, settings, by = KINDS[kind]
    task = repr(task) if isinstance(task, str) else task.__name__
    out = run_well(
        f"""
        import pickle
        import stepmill
        from stepmill import errors
        from support.envs import ProbeTwin
        from support.processes import child, exit_code

        def refused(call):
            try:
                call()
            except errors.ForkedError:
                return
            raise AssertionError(call)

        if __name__ == "__main__":
            pool = stepmill.make({task}, num_envs=2, **{settings!r})
            pool.reset()
            states = pool.save(by={by!r})

            def body():
                for call in (lambda: pool.save(by={by!r}), lambda: pool.restore(states), lambda: pool.fork(0, [1])):
                    refused(call)

            print(exit_code(child(body)), flush=True)
            before = [bytes(one) for one in pool.save()]
            print(exit_code(child(lambda: pickle.loads(pickle.dumps(states)))), flush=True)
            print(before == [bytes(one) for one in pool.save()], pool.restore(states)[1]["env_id"].tolist())
        """
    )
    assert out.splitlines() == ["0", "0", "True [0, 1]"]


# ---- deaths --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", IN_PROCESSES)
def test_states_outlive_the_worker_that_they_came_from(kind: str) -> None:
    task, settings, by = KINDS[kind]
    with stepmill.make(task, num_envs=2, length=1000, on_error="restart", **settings) as pool:
        pool.reset()
        step(pool, 3)
        states = pool.save(by=by)
        pool.restore(states)
        expected = step(pool, 4)
        for env_id in (0, 1, 0):
            kill_worker(pool, env_id)
            with pytest.raises(errors.WorkerDiedError):
                pool.restore(states)
            pool.reset([env_id])
            pool.restore(states)
            assert_same(step(pool, 4), expected)


def test_kills_at_any_moment_leave_old_states_good() -> None:
    """A worker is killed while it saves, restores or steps: the call fails with its death, or is as it would have been.

    Where exactly it hits, chance decides; nothing that the test asks depends on it.
    """
    with stepmill.make(ProbeTwin, num_envs=4, length=1000, backend="process", num_workers=2) as pool:
        pool.reset()
        step(pool, 3)
        states = pool.save()
        expected = step(pool, 2)
        died = 0
        for turn in range(12):
            victim = worker_pids(pool)[turn % 2]
            thread = in_thread(functools.partial(signal_to, victim))
            try:
                while True:  # until it hits
                    pool.restore(states)
                    assert_same(step(pool, 2), expected)
                    pool.save()
            except errors.WorkerDiedError:
                died += 1
            thread.join()
            pool.reset()
            pool.restore(states)
            assert_same(step(pool, 2), expected)
        assert died == 12


class Stuck(ProbeTwin):
    """Never comes back from ``set_state`` once it was told so; a file says that it is there."""

    mark = ""

    def set_state(self, state: Any) -> None:
        if self.mark:
            Path(self.mark).touch()
            threading.Event().wait()
        super().set_state(state)


def test_ctrl_c_ends_the_wait_for_an_env_that_never_takes_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_host, "_STUCK_S", 0.2)
    mark = tmp_path / "inside"

    def interrupt() -> None:
        while not mark.exists():
            os.sched_yield()
        os.kill(os.getpid(), signal.SIGINT)

    with stepmill.make(Stuck, num_envs=2, length=1000, backend="process", num_workers=2) as pool:
        pool.reset(seed=1)
        states = pool.save()
        step(pool, 3)
        before = content(pool.save([0]))
        pool.set_attr("mark", ["", str(mark)])
        thread = in_thread(interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.restore(states)
        thread.join()
        assert content(pool.save([0])) == before  # as it was; the worker of the other one is replaced
        with pytest.raises(errors.WorkerDiedError):
            pool.save([1])
        pool.reset()
        pool.restore(states)
        assert content(pool.save()) == content(states)


# ---- what is left --------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_ten_thousand_saves_restores_and_forks_leave_nothing(kind: str) -> None:
    task, settings, by = KINDS[kind]
    rounds = 10_000
    with stepmill.make(task, num_envs=2, length=1000, **settings) as pool:
        pool.reset()

        def play(times: int) -> None:
            for _ in range(times):
                states = pool.save(by=by)
                step(pool)
                pool.restore(states)
                if by is None:
                    pool.fork(0, [1])

        play(rounds // 10)
        gc.collect()
        before, held, arena = belongings(), resident_bytes(), pool.stats()["memory_bytes"]
        workers = sum(map(private_bytes, worker_pids(pool))) if kind in IN_PROCESSES else 0
        play(rounds)
        gc.collect()
        assert belongings() <= before
        assert pool.stats()["memory_bytes"] == arena
        assert resident_bytes() - held < 3_000_000
        if kind in IN_PROCESSES:
            assert sum(map(private_bytes, worker_pids(pool))) - workers < 3_000_000


def private_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return 1024 * sum(int(line.split()[1]) for line in file if line.startswith("Private"))
