"""Calls of a manager that are interrupted lose nothing."""

from __future__ import annotations

from typing import Any

import pytest

from stepmill.managers import BaseEnvManager, EnvState, SyncSubprocessEnvManager
from support.envs.contract import Walk
from support.envs.managed import launched, suffering
from support.manager_cases import pool_of
from support.waiting import Gate

pytestmark = pytest.mark.usefixtures("deadline", "server")


def test_results_that_an_interrupted_call_took_are_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with BaseEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        monkeypatch.setattr(manager._scheduler._traffic, "_take", interrupt)
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0})
        monkeypatch.undo()
        assert manager.ready_obs == {}
        assert set(manager.env_state.values()) == {EnvState.RUN}
        assert list(manager.step({})) == [0, 1]
        assert manager.elapsed == [1, 1]
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_an_action_that_was_sent_and_not_noted_comes_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with SyncSubprocessEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        pool_of(manager).send([0, 0], [0, 1])  # as if Ctrl-C had come right after it
        manager._scheduler._needs_mending = True
        manager.reset()
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]
        assert manager.elapsed == [1, 1]


def test_a_reset_that_is_interrupted_leaves_no_env_in_between(gate: Gate) -> None:
    with launched("async", [suffering("step", "gate", folder=gate.folder), {}], timeout=0, wait_num=1) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        manager._scheduler.standings.drop([0])  # as a reset that Ctrl-C ends while it waits for the step
        manager._scheduler._needs_mending = True
        gate.open(0)
        assert list(manager.ready_obs) == [1]
        assert manager.env_state[0] is EnvState.ERROR
        manager.reset({0: None})
        assert list(manager.ready_obs) == [0, 1]
        came = set(manager.step({0: 0, 1: 0}))  # one of them is enough for a step of this manager
        while len(came) < 2:
            came |= set(manager.step({}))
        assert came == {0, 1}


class NoRoom(dict[int, Any]):
    """Takes nothing more."""

    def update(self, *_: Any) -> None:
        raise KeyboardInterrupt


def test_results_that_an_interrupt_kept_from_being_noted_are_noted() -> None:
    with BaseEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        standings = manager._scheduler.standings
        standings.timesteps = NoRoom()
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0})
        standings.timesteps = {}
        assert manager.ready_obs == {}
        assert list(manager.step({})) == [0, 1]
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_a_reset_that_an_interrupt_kept_from_being_sent_is_sent(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with cls([lambda: Walk({"length": 1})] * 2) as manager:
        manager.launch()
        monkeypatch.setattr(manager._scheduler._traffic, "send_resets", interrupt)
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0})
        monkeypatch.undo()
        ended = manager.step({})
        assert [one.done for one in ended.values()] == [True, True]
        assert manager.episode_count == {0: 1, 1: 1}
        while len(manager.ready_obs) < 2:
            pass
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]
