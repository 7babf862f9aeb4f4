"""``close`` of a manager, however it comes, leaves nothing behind."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from stepmill import EnvError
from stepmill.managers import SyncSubprocessEnvManager
from support.envs.contract import Walk
from support.envs.managed import Trial, count, make, states, step_all, suffering
from support.manager_cases import SERIAL_AND_ASYNC, VOID
from support.processes import belongings, left_since, signal_to
from support.subprocesses import run_well
from support.waiting import Gate, doing, ends

pytestmark = pytest.mark.usefixtures("deadline", "server")


@SERIAL_AND_ASYNC
def test_close_leaves_nothing_and_closes_every_env(kind: str, tmp_path: Path) -> None:
    before = belongings()
    manager = make(kind, [{"folder": tmp_path}] * 3)
    for launch in (1, 2):
        manager.launch()
        step_all(manager)
        manager.close()
        assert left_since(before) == []
        assert [count(tmp_path, "closed", i) for i in range(3)] == [launch] * 3


def test_close_with_actions_in_flight_leaves_nothing(gate: Gate) -> None:
    before = belongings()
    cfgs = [suffering("step", "gate", folder=gate.folder), {"folder": gate.folder}]
    manager = make("async", cfgs, wait_num=1, timeout=0)
    manager.launch()
    manager.step({0: 0, 1: 0})
    assert gate.wait() == 0
    join = doing(lambda: gate.open(0))
    manager.close()
    join()
    assert left_since(before) == []
    assert [count(gate.folder, "closed", i) for i in (0, 1)] == [1, 1]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("where", "mishap"), [("step", "gate"), ("step", "C with the lock"), ("reset", "stopped"), ("close", "gate")]
)
def test_close_ends_a_stuck_child_by_force(where: str, mishap: str, gate: Gate) -> None:
    before = belongings()
    at = [2] if where == "reset" else [1]
    cfgs = [suffering(where, mishap, at, folder=gate.folder, length=1), {"folder": gate.folder}]
    manager = make("async", cfgs, wait_num=1, timeout=0)
    manager.launch()
    pids = manager.pid
    if where != "close":
        manager.step({0: 0} if where == "reset" else {0: 0, 1: 0})
        assert gate.wait() == 0
    manager.close()
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    assert all(ends(pid) for pid in pids)
    assert left_since(before) == []


def test_beside_a_stuck_child_the_others_are_closed_in_order(gate: Gate) -> None:
    """With the usual patience: a busy machine may need more time for it than impatient tests have."""
    cfgs = [suffering("step", "gate", folder=gate.folder), {"folder": gate.folder}]
    manager = make("async", cfgs, wait_num=1, timeout=0)
    manager.launch()
    manager.step({0: 0, 1: 0})
    assert gate.wait() == 0
    manager.close()
    assert count(gate.folder, "closed", 1) == 1


def test_close_after_children_died_leaves_nothing() -> None:
    before = belongings()
    manager = make("async", [suffering("step", "exit"), {}, {}])
    manager.launch()
    step_all(manager)
    signal_to(manager.pid[1])
    manager.close()
    assert left_since(before) == []


@SERIAL_AND_ASYNC
def test_an_exception_in_close_is_told_and_all_is_freed(kind: str, tmp_path: Path) -> None:
    before = belongings()
    manager = make(kind, [{"folder": tmp_path}, suffering("close", "raise"), {"folder": tmp_path}])
    manager.launch()
    with pytest.raises(EnvError, match="env 1 failed in close") as caught:
        manager.close()
    del caught
    assert (manager.closed, states(manager)) == (True, [VOID] * 3)
    manager.close()
    assert [count(tmp_path, "closed", i) for i in (0, 2)] == [1, 1]
    assert left_since(before) == []


@SERIAL_AND_ASYNC
def test_a_manager_that_is_forgotten_leaves_nothing(kind: str, tmp_path: Path) -> None:
    before = belongings()
    manager = make(kind, [{"folder": tmp_path}] * 2)
    manager.launch()
    step_all(manager)
    del manager
    gc.collect()
    assert left_since(before) == []
    assert [count(tmp_path, "closed", i) for i in range(2)] == [1, 1]


@pytest.mark.usefixtures("impatient")
def test_a_manager_that_is_forgotten_with_a_stuck_child_leaves_nothing(gate: Gate) -> None:
    before = belongings()
    manager = make("async", [suffering("step", "gate", folder=gate.folder), {}], wait_num=1, timeout=0)
    manager.launch()
    manager.step({0: 0, 1: 0})
    assert gate.wait() == 0
    del manager
    gc.collect()
    assert left_since(before) == []


@pytest.mark.parametrize("kind", ["serial", "async"])
def test_an_interpreter_that_ends_without_close_is_silent_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    out = run_well(
        f"""
        from support.envs.managed import make
        from support.processes import descendants
        manager = make({kind!r}, [dict(folder={str(tmp_path)!r})] * 2)
        manager.launch()
        manager.step({{0: 0}})
        manager.env_ref
        kept = manager.ready_obs, manager.step
        print(*descendants(), flush=True)
        """
    )
    assert all(ends(int(pid)) for pid in out.split())
    assert len(out.split()) == (0 if kind == "serial" else 4), "the server, the template, two workers"
    assert [count(tmp_path, "closed", i) for i in range(2)][1] == 1


def test_an_interpreter_that_ends_after_a_failure_leaves_nothing() -> None:
    out = run_well(
        """
        from support.envs.managed import make, suffering
        from support.processes import descendants
        manager = make("async", [suffering("step", "exit"), {}])
        manager.launch()
        try:
            manager.step({0: 0, 1: 0})
            manager.step({})
        except RuntimeError as error:
            kept = error
        print(*descendants(), flush=True)
        """
    )
    assert all(ends(int(pid)) for pid in out.split())


class Hooked(SyncSubprocessEnvManager):
    """Counts how often it is closed."""

    closings = 0

    def close(self) -> None:
        self.closings += 1
        super().close()


def test_a_manager_that_gives_up_closes_as_a_whole(tmp_path: Path) -> None:
    cfgs = [{"id": 0, "length": 1, "folder": tmp_path, **suffering("reset", "raise", [2])}]
    manager = Hooked(Trial, cfgs, 1, max_retry=0)
    manager.launch()
    assert manager.env_ref.life == 2
    manager.step({0: 0})
    with pytest.raises(EnvError, match="reset"):
        manager.ready_obs  # noqa: B018
    assert manager.closed
    assert manager.closings == 1
    assert count(tmp_path, "closed", 0) >= 1


def test_a_closed_manager_keeps_nothing_of_its_pool() -> None:
    manager = SyncSubprocessEnvManager([lambda: Walk({})] * 2)
    manager.launch()
    manager.step({0: 0, 1: 0})
    manager.close()
    assert not manager._scheduler.standings.last_obs
    assert not manager._scheduler.standings.timesteps
