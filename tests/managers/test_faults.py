"""Envs that fail, hang or die in a manager: a clear error in time, and the others unharmed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill import EnvError, errors
from stepmill.managers import SubprocessEnvManager, SyncSubprocessEnvManager
from support.envs.contract import Walk
from support.envs.drawn import CountingEnv, counts
from support.envs.faulty import DEATHS, RAISED
from support.envs.managed import KINDS, Trial, elapsed, launched, make, states, step_all, suffering
from support.manager_cases import ERROR, MISSED_DEADLINE, RAISED_HERE, RUN, SERIAL_AND_ASYNC, VOID, pool_of
from support.processes import belongings, kill_worker, left_since, signal_to
from support.waiting import Gate, ends, eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")


# ---- a step that fails ---------------------------------------------------------------------------


@SERIAL_AND_ASYNC
@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "several arguments", "broken text"])
def test_a_failed_step_marks_its_env_keeps_the_others_and_raises(kind: str, mishap: str) -> None:
    message, cause = RAISED[mishap]
    with launched(kind, [{}, suffering("step", mishap, [2]), {}]) as manager:
        step_all(manager)
        timesteps, raised = step_all(manager)
        (error,) = raised
        assert (error.env_id, error.phase, error.step) == (1, "step", 1)
        assert isinstance(error.__cause__, cause if kind != "serial" else RAISED_HERE[mishap])
        with pytest.raises(EnvError, match=f"env 1 failed in step .*{message}"):
            raise error
        assert {i: one.obs[2] for i, one in timesteps.items()} == {0: 2, 2: 2}
        assert (states(manager), elapsed(manager)) == ([RUN, ERROR, RUN], {0: 2, 2: 2})
        with pytest.raises(errors.InFlightError, match=r"the envs \[1\].*1: 'ERROR'"):
            manager.step({0: 0, 1: 0})
        step_all(manager, 0)
        manager.reset({1: None})
        assert (states(manager), elapsed(manager)) == ([RUN, RUN, RUN], {0: 3, 1: 0, 2: 2})
        assert step_all(manager, 1)[0][1].obs[2] == 1
        assert manager.life == [1, 1, 1]


@SERIAL_AND_ASYNC
def test_all_that_fail_at_once_are_told(kind: str) -> None:
    with launched(kind, [suffering("step", "raise"), {}, suffering("step", "raise")]) as manager:
        timesteps, raised = step_all(manager)
        assert sorted(error.env_id or 0 for error in raised) == [0, 2]
        assert list(timesteps) == [1]
        assert states(manager) == [ERROR, RUN, ERROR]
        manager.reset({0: None, 2: None})
        assert states(manager) == [RUN] * 3


def test_the_error_of_a_sync_step_carries_the_other_timesteps() -> None:
    with launched("sync", [{}, suffering("step", "raise"), suffering("step", "exit"), {}]) as manager:
        with pytest.raises(EnvError) as caught:
            manager.step(dict.fromkeys(range(4), 1))
        assert {i: one.info["action"] for i, one in caught.value.batch.items()} == {0: 1, 3: 1}
        assert isinstance(caught.value, RuntimeError)
        assert [errors.WorkerDiedError in type(one).__mro__ for one in caught.value.errors] == [False, True]
        assert manager.step({}) == {}, "it was told once"


def test_a_failure_that_ready_obs_met_is_told_by_the_next_step(gate: Gate) -> None:
    cfgs = [suffering("step", "gate, then exit", folder=gate.folder), {}]
    with launched("async", cfgs, wait_num=1, timeout=0) as manager:
        assert list(manager.step({0: 0, 1: 0})) == [1]
        assert gate.wait() == 0
        gate.open(0)
        assert eventually(lambda: manager.ready_obs is not None and manager.env_state[0] is ERROR)
        with pytest.raises(errors.WorkerDiedError, match="exited with code 7"):
            manager.step({})
        assert states(manager) == [ERROR, RUN]


@SERIAL_AND_ASYNC
def test_an_observation_that_does_not_fit_is_a_failure_and_is_not_stretched(kind: str) -> None:
    class Narrow(Trial):
        observation_space = spaces.Box(-1000, 1000, (4,), np.float32)

        def _observation(self) -> np.ndarray:
            return np.zeros(1 if self.elapsed == 1 and self.env_id == 1 else 4, np.float32)

    with launched(kind, 2, Narrow) as manager:
        timesteps, (error,) = step_all(manager)
        assert isinstance(error, errors.ObservationError)
        assert "(4,)" in str(error)
        assert "(1,)" in str(error)
        assert (list(timesteps), states(manager)) == ([0], [RUN, ERROR])
        manager.reset({1: None})
        assert states(manager) == [RUN, RUN]


def test_an_observation_that_cannot_be_pickled_is_a_failure_of_its_env() -> None:
    class Locked(Trial):
        def _observation(self) -> Any:
            return (i for i in range(3)) if self.elapsed == 1 and self.env_id == 1 else [self.elapsed]

    with launched("async", 2, Locked, shared_memory=False) as manager:
        timesteps, (error,) = step_all(manager)
        assert "pickle" in str(error)
        assert (timesteps[0].obs, states(manager)) == ([1], [RUN, ERROR])


# ---- a child that dies ---------------------------------------------------------------------------


@pytest.mark.parametrize("death", DEATHS)
def test_a_child_that_dies_in_step_is_an_error_of_its_env(death: str) -> None:
    with launched("sync", [{}, suffering("step", death, [2]), {}]) as manager:
        pids = manager.pid
        step_all(manager)
        timesteps, (error,) = step_all(manager)
        assert isinstance(error, errors.WorkerDiedError)
        assert (error.env_id, DEATHS[death] in str(error)) == (1, True)
        assert {i: one.obs[2] for i, one in timesteps.items()} == {0: 2, 2: 2}
        assert (states(manager), elapsed(manager)) == ([RUN, ERROR, RUN], {0: 2, 2: 2})
        step_all(manager)
        manager.reset({1: None})
        assert (states(manager), elapsed(manager)) == ([RUN, RUN, RUN], {0: 3, 1: 0, 2: 3})
        assert [one == other for one, other in zip(pids, manager.pid, strict=True)] == [True, False, True]
        assert step_all(manager)[1] == []


@pytest.mark.parametrize("where", ["idle", "in flight"])
def test_a_killed_child_is_an_error_of_its_env(where: str, gate: Gate) -> None:
    cfgs = [{}, suffering("step", "gate", folder=gate.folder)]
    with launched("async", cfgs, wait_num=1, timeout=0) as manager:
        victim = manager.pid[1]
        if where == "in flight":
            assert list(manager.step({0: 0, 1: 0})) == [0]
            assert gate.wait() == 1
        signal_to(victim)
        assert ends(victim)
        with pytest.raises(errors.WorkerDiedError, match=r"env 1 .*killed by SIGKILL"):
            manager.step({} if where == "in flight" else {1: 0})
        assert states(manager) == [RUN, ERROR]
        assert list(manager.step({0: 0})) == [0]
        manager.reset({1: None})
        assert states(manager) == [RUN, RUN]


def test_a_child_that_is_killed_in_a_reset_is_tried_again(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1, lives=[1]), {"length": 99}]
    with launched("async", cfgs) as manager:
        victim = manager.pid[0]
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        signal_to(victim)
        assert eventually(lambda: 0 in manager.ready_obs)
        assert (states(manager), elapsed(manager)[0]) == ([RUN, RUN], 0)
        assert manager.life == [2, 1]


def test_envs_that_shared_a_dead_child_fail_one_by_one_and_come_back() -> None:
    """Four envs, two processes: 1 was idle when 0 died, and learns of it with its next action."""
    with launched("sync", [suffering("step", "exit", [2]), {}, {}, {}], num_workers=2) as manager:
        step_all(manager)
        timesteps, (error,) = step_all(manager, 0, 2, 3)
        assert (error.env_id, list(timesteps), states(manager)) == (0, [2, 3], [ERROR, RUN, RUN, RUN])
        timesteps, (error,) = step_all(manager, 1, 2)
        assert isinstance(error, errors.WorkerDiedError)
        assert (error.env_id, list(timesteps), states(manager)) == (1, [2], [ERROR, ERROR, RUN, RUN])
        manager.reset({0: None, 1: None})
        assert elapsed(manager) == {0: 0, 1: 0, 2: 3, 3: 2}
        assert step_all(manager)[1] == []


@pytest.mark.parametrize("dynamic_seed", [True, False])
def test_an_env_that_was_built_anew_is_seeded_as_before(dynamic_seed: bool) -> None:
    seen = []
    for _ in range(2):
        with make("async", [suffering("step", "exit", [3]), {}]) as manager:
            manager.seed(5, dynamic_seed=dynamic_seed)
            manager.launch()
            for _ in range(3):
                _, raised = step_all(manager)
            assert len(raised) == 1
            manager.reset({0: None})
            seen.append(manager.last_seed)
            if not dynamic_seed:
                assert manager.last_seed == [5, 6]
                manager.reset()
                assert manager.last_seed == [5, 6]
    assert seen[0] == seen[1], "the whole run repeats, with its failures"


@SERIAL_AND_ASYNC
def test_many_failures_one_after_another(kind: str) -> None:
    mishaps = ["raise", "several arguments"] if kind == "serial" else ["raise", "exit", "killed"]
    cfgs = [suffering("step", mishap, range(2 + i, 100, 2 + i)) for i, mishap in enumerate(mishaps)]
    with launched(kind, [*cfgs, {"length": 99}]) as manager:
        failures = [0] * len(mishaps)
        for turn in range(1, 13):
            timesteps, raised = step_all(manager)
            assert sorted([*timesteps, *(error.env_id for error in raised)]) == list(range(manager.env_num))
            assert timesteps[manager.env_num - 1].obs[2] == turn
            for error in raised:
                failures[error.env_id or 0] += 1
                manager.reset({error.env_id: None})
        assert min(failures) > 1


# ---- a child that is stuck -----------------------------------------------------------------------


@pytest.mark.parametrize("mishap", ["gate", "C with the lock", "stopped"])
def test_a_step_past_its_deadline_is_an_error_of_its_env(mishap: str, gate: Gate) -> None:
    cfgs = [{}, suffering("step", mishap, folder=gate.folder, lives=[1]), {}]
    with launched("sync", cfgs, step_timeout=MISSED_DEADLINE) as manager:
        timesteps, (error,) = step_all(manager)
        assert isinstance(error, errors.EnvTimeoutError)
        assert error.env_id == 1
        assert "step_timeout" in str(error)
        assert mishap == "stopped" or "_suffer" in str(error), "it shows where the child is"
        assert (list(timesteps), states(manager)) == ([0, 2], [RUN, ERROR, RUN])
        manager.reset({1: None})
        assert (states(manager), manager.life) == ([RUN] * 3, [1, 2, 1])
        assert step_all(manager)[1] == []


def test_a_reset_past_its_deadline_is_tried_again_in_a_new_child(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", folder=gate.folder, lives=[1]), {}]
    with launched("async", cfgs, reset_timeout=MISSED_DEADLINE) as manager:
        assert (states(manager), manager.life) == ([RUN, RUN], [2, 1])


def test_ready_obs_waits_no_longer_than_the_deadline_of_a_reset(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1)]
    with launched("async", cfgs, reset_timeout=MISSED_DEADLINE, max_retry=0) as manager:
        manager.step({0: 0})
        with pytest.raises(errors.EnvTimeoutError, match=r"env 0 .*reset_timeout"):
            manager.ready_obs  # noqa: B018
        assert (manager.closed, states(manager)) == (True, [VOID])


def test_launch_with_a_stuck_reset_ends_with_its_deadline(gate: Gate) -> None:
    before = belongings()
    manager = make("async", [{}, suffering("reset", "gate", folder=gate.folder)], reset_timeout=MISSED_DEADLINE)
    with pytest.raises(errors.EnvTimeoutError, match="wait_at_gate") as caught:
        manager.launch()
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    del caught
    assert left_since(before) == []


# ---- calls that fail -----------------------------------------------------------------------------


class Visiting(SubprocessEnvManager):
    """Lists a method more."""

    @property
    def method_name_list(self) -> list[str]:
        return [*super().method_name_list, "visit"]


@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "several arguments"])
def test_an_exception_in_a_method_is_raised_and_harms_no_other_env(mishap: str) -> None:
    with Visiting(Trial, [suffering("visit", mishap), {}], 2) as manager:
        manager.launch()
        with pytest.raises(Exception, match="broken"):
            manager.visit()
        assert manager.visit(3) == [(0, 3), (1, 3)]
        assert step_all(manager)[1] == []


def test_a_child_that_dies_in_a_method_is_an_error_and_its_env_comes_back(tmp_path: Path) -> None:
    cfgs = [suffering("visit", "exit", folder=tmp_path, lives=[1]), {}]
    with Visiting(Trial, cfgs, 2, num_workers=2) as manager:
        manager.launch()
        with pytest.raises(errors.WorkerDiedError, match="exited with code 7"):
            manager.visit()
        timesteps, (error,) = step_all(manager)
        assert (error.env_id, list(timesteps), states(manager)) == (0, [1], [ERROR, RUN])
        manager.reset({0: None})
        assert manager.visit(1) == [(0, 1), (1, 1)]


# ---- videos --------------------------------------------------------------------------------------


class CountingProcess(CountingEnv):
    """Tells where it runs."""

    @property
    def pid(self) -> int:
        return os.getpid()


def test_after_a_child_was_killed_its_env_records_on(tmp_path: Path) -> None:
    with make("sync", [{"length": 3}] * 2, CountingProcess, episode_num=2) as manager:
        manager.enable_save_replay(tmp_path)
        manager.launch()
        step_all(manager)
        victim = manager.pid[1]
        signal_to(victim)
        assert ends(victim)
        _, (error,) = step_all(manager)
        assert error.env_id == 1
        manager.reset({1: None})
        while not manager.done:
            step_all(manager)
    whole = {path.name: counts(path) for path in sorted(tmp_path.iterdir()) if path.suffix == ".mp4"}
    assert whole == {
        "env_0_episode_0000.mp4": [0, 1, 2, 3],
        "env_0_episode_0001.mp4": [0, 1, 2, 3],
        # The one that was cut off is no video.
        "env_1_episode_0001.mp4": [0, 1, 2, 3],
        "env_1_episode_0002.mp4": [0, 1, 2, 3],
    }


def test_a_renewed_env_records_on(tmp_path: Path) -> None:
    class Frail(CountingEnv):
        def reset(self, **kwargs: Any) -> Any:
            if self.count and not (tmp_path / "failed").exists():
                (tmp_path / "failed").touch()
                raise KeyError("broken")
            return super().reset(**kwargs)

    for kind in KINDS:
        folder = tmp_path / kind
        with make(kind, [{"length": 2}], Frail, retry_type="renew", episode_num=2) as manager:
            manager.enable_save_replay(folder)
            manager.launch()
            while not manager.done:
                step_all(manager)
        assert [counts(path) for path in sorted(folder.iterdir())] == [[0, 1, 2]] * 2
        assert (tmp_path / "failed").exists()
        (tmp_path / "failed").unlink()


def test_a_neighbour_of_a_dead_env_is_brought_back_with_its_instructions() -> None:
    fns = [lambda: Walk({"fail_at": None}), lambda: Walk({})]
    with SyncSubprocessEnvManager(fns, num_workers=1) as manager:
        manager.seed(3, dynamic_seed=False)
        manager.launch()
        kill_worker(pool_of(manager), 0)
        with pytest.raises(EnvError):
            manager.step({0: 0})
        manager.reset()
        assert manager.dynamic_seed == [False, False]
