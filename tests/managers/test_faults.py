"""Envs that fail, hang or die in a manager: a clear error in time, the others unharmed, and nothing left behind."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill import EnvError, errors
from stepmill.errors import ActionError, ConcurrentUseError, InputError, UnsupportedError
from stepmill.managers import BaseEnvManager, EnvState, SubprocessEnvManager, SyncSubprocessEnvManager
from support.contract_envs import Pair, Walk
from support.manager_envs import KINDS, Trial, count, doing, elapsed, launched, make, play, states, suffering
from support.probes import ProbeTwin
from support.process_envs import (
    DEATHS,
    RAISED,
    BrokenText,
    Gate,
    SeveralArguments,
    Unpicklable,
    belongings,
    ends,
    eventually,
    kill_worker,
    left_since,
    signal_to,
    wait_at_gate,
)
from support.replay_envs import CountingEnv, counts
from support.subprocesses import run_well

pytestmark = pytest.mark.usefixtures("deadline", "server")

VOID, INIT, RUN, RESET, DONE, ERROR, NEED_RESET = EnvState
ALL = pytest.mark.parametrize("kind", KINDS)
BOTH = pytest.mark.parametrize("kind", ["serial", "async"])
ALWAYS = range(1, 1000)
SOON = 0.3  # seconds: a deadline that is to be missed


def step_all(manager: BaseEnvManager, *env_ids: int) -> tuple[dict[int, Any], list[EnvError]]:
    """Steps envs, all that are ready by default, until nothing is in flight: what came of each."""
    timesteps: dict[int, Any] = {}
    raised: list[EnvError] = []
    actions = dict.fromkeys(env_ids or list(manager.ready_obs), 0)
    while actions or set(manager.active_env) - set(manager.ready_env):
        try:
            timesteps.update(manager.step(actions))
        except EnvError as error:
            timesteps.update(error.batch)
            raised += error.errors
        actions = {}
    return timesteps, raised


# ---- a step that fails ---------------------------------------------------------------------------

# What an env that runs in this process raised itself; of others see RAISED.
OWN = {"raise": KeyError, "unpicklable": Unpicklable, "several arguments": SeveralArguments, "broken text": BrokenText}


@BOTH
@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "several arguments", "broken text"])
def test_a_failed_step_marks_its_env_keeps_the_others_and_raises(kind: str, mishap: str) -> None:
    message, cause = RAISED[mishap]
    with launched(kind, [{}, suffering("step", mishap, [2]), {}]) as manager:
        step_all(manager)
        timesteps, raised = step_all(manager)
        (error,) = raised
        assert (error.env_id, error.phase, error.step) == (1, "step", 1)
        assert isinstance(error.__cause__, cause if kind != "serial" else OWN[mishap])
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


@BOTH
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
        assert [type(one) for one in caught.value.errors] == [EnvError, errors.WorkerDiedError]
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


@BOTH
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


@BOTH
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
    with launched("sync", cfgs, step_timeout=SOON) as manager:
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
    with launched("async", cfgs, reset_timeout=SOON) as manager:
        assert (states(manager), manager.life) == ([RUN, RUN], [2, 1])


def test_ready_obs_waits_no_longer_than_the_deadline_of_a_reset(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1)]
    with launched("async", cfgs, reset_timeout=SOON, max_retry=0) as manager:
        manager.step({0: 0})
        with pytest.raises(errors.EnvTimeoutError, match=r"env 0 .*reset_timeout"):
            manager.ready_obs  # noqa: B018
        assert (manager.closed, states(manager)) == (True, [VOID])


def test_launch_with_a_stuck_reset_ends_with_its_deadline(gate: Gate) -> None:
    before = belongings()
    manager = make("async", [{}, suffering("reset", "gate", folder=gate.folder)], reset_timeout=SOON)
    with pytest.raises(errors.EnvTimeoutError, match="wait_at_gate") as caught:
        manager.launch()
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    del caught
    assert left_since(before) == []


# ---- a constructor that fails --------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "several arguments"])
def test_a_constructor_that_raises_is_the_cause_and_nothing_is_left(kind: str, mishap: str, tmp_path: Path) -> None:
    before = belongings()
    message, cause = RAISED[mishap]
    cfgs = [{"folder": tmp_path}, suffering("constructor", mishap, folder=tmp_path, lives=[1])]
    manager = make(kind, cfgs, **({} if kind == "serial" else {"num_workers": 1}))
    with pytest.raises(EnvError, match=f"the constructor of env 1 .*{message}") as caught:
        manager.launch()
    assert isinstance(caught.value.__cause__, cause if kind != "serial" else OWN[mishap])
    del caught
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    assert left_since(before) == []
    assert count(tmp_path, "closed", 0) == 1
    manager.launch()
    assert states(manager) == [RUN, RUN]
    manager.close()


@pytest.mark.parametrize("mishap", ["exit", "killed", "gate"])
def test_a_child_that_dies_or_hangs_in_a_constructor_is_an_error_and_nothing_is_left(mishap: str, gate: Gate) -> None:
    before = belongings()
    cfgs = [{}, suffering("constructor", mishap, folder=gate.folder)]
    manager = make("async", cfgs, connect_timeout=1 if mishap == "gate" else 60)
    with pytest.raises(errors.EnvTimeoutError if mishap == "gate" else EnvError) as caught:
        manager.launch()
    assert caught.value.env_id == 1
    assert ("wait_at_gate" if mishap == "gate" else DEATHS[mishap]) in str(caught.value)
    del caught
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    assert left_since(before) == []


# ---- a seed or a reset that fails ----------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("where", "mishap"),
    [("seed", "raise"), ("seed", "unpicklable"), ("reset", "raise"), ("reset", "several arguments")],
)
def test_a_seed_or_reset_that_keeps_failing_closes_the_manager_and_raises_the_cause(
    kind: str, where: str, mishap: str
) -> None:
    message, cause = RAISED[mishap]
    manager = make(kind, [{}, suffering(where, mishap, ALWAYS), {}])
    manager.seed(3)
    with pytest.raises(EnvError, match=f"env 1 failed in reset .*{message}") as caught:
        manager.launch()
    assert isinstance(caught.value.__cause__, cause if kind != "serial" else OWN[mishap])
    assert any("failed 2 times, and the manager is closed" in note for note in caught.value.__notes__)
    assert (manager.closed, states(manager)) == (True, [VOID] * 3)
    with pytest.raises(errors.ClosedError):
        manager.ready_obs  # noqa: B018


@BOTH
@pytest.mark.parametrize("retry_type", ["reset", "renew"])
@pytest.mark.parametrize("max_retry", [0, 2])
def test_a_failed_reset_is_tried_as_often_as_it_is_said(
    kind: str, retry_type: str, max_retry: int, tmp_path: Path
) -> None:
    settings = {"retry_type": retry_type, "max_retry": max_retry}
    cfgs = [{"folder": tmp_path}, suffering("reset", "raise", ALWAYS, folder=tmp_path)]
    manager = make(kind, cfgs, **settings)
    with pytest.raises(EnvError, match="env 1 failed in reset"):
        manager.launch()
    assert manager.closed
    assert [count(tmp_path, "tried", i) for i in (0, 1)] == [1, 1 + max_retry]
    assert count(tmp_path, "built", 1) == (1 + max_retry if retry_type == "renew" else 1)
    assert count(tmp_path, "closed", 1) == count(tmp_path, "built", 1)


@BOTH
def test_a_reset_is_tried_again_in_the_same_env(kind: str, tmp_path: Path) -> None:
    cfgs = [suffering("reset", "raise", [1, 3], folder=tmp_path, length=2), {"length": 2}]
    with launched(kind, cfgs, episode_num=2) as manager:
        assert [len(one) for one in play(manager).values()] == [2, 2]
        assert (count(tmp_path, "tried", 0), count(tmp_path, "reset", 0)) == (4, 2)
        assert manager.life == [1, 1]


@BOTH
def test_a_reset_is_tried_again_in_a_new_env(kind: str, tmp_path: Path) -> None:
    cfgs = [suffering("reset", "raise", ALWAYS, folder=tmp_path, lives=[1], length=2), {"length": 2}]
    with make(kind, cfgs, episode_num=2, retry_type="renew") as manager:
        manager.seed(5)
        manager.launch()
        pids = manager.pid
        assert manager.life == [2, 1]
        assert count(tmp_path, "closed", 0) == 1, "the old env was closed"
        seeds = manager.last_seed
        assert [len(one) for one in play(manager).values()] == [2, 2]
        assert manager.pid == pids
    lone = [Trial(), Trial()]
    for env_id, env in enumerate(lone):
        env.seed(5 + env_id)
        env.reset()
    assert seeds == [env.last_seed for env in lone], "the new env has the seed of the old one"


@BOTH
def test_a_renewed_env_goes_on_with_static_seeds_and_its_parameters(kind: str, tmp_path: Path) -> None:
    cfgs = [suffering("reset", "raise", [2, 3], folder=tmp_path, lives=[1])]
    with make(kind, cfgs, retry_type="renew") as manager:
        manager.seed(5, dynamic_seed=False)
        manager.launch([{"a": 1}])
        manager.reset()
        assert (manager.life, manager.last_seed, manager.reset_kwargs) == ([2], [5], [{"a": 1}])
        manager.reset()
        assert (manager.life, manager.last_seed) == ([2], [5])


@BOTH
@pytest.mark.parametrize("retry_type", ["reset", "renew"])
def test_a_seed_that_fails_once_is_not_forgotten(kind: str, retry_type: str, tmp_path: Path) -> None:
    cfgs = [suffering("seed", "raise", folder=tmp_path, lives=[1]), {}]
    with make(kind, cfgs, retry_type=retry_type) as manager:
        manager.seed(5)
        manager.launch()
        lone = Trial()
        lone.seed(5)
        lone.reset()
        assert manager.last_seed[0] == lone.last_seed


@BOTH
def test_a_reset_that_is_tried_again_does_not_begin_the_seeds_anew(kind: str) -> None:
    with make(kind, [suffering("reset", "raise", [3])]) as manager:
        manager.seed(5)
        manager.launch()
        seen = manager.last_seed
        for _ in range(3):
            manager.reset()
            seen += manager.last_seed
        lone = Trial()
        lone.seed(5)
        expected = []
        for _ in range(4):
            lone.reset()
            expected.append(lone.last_seed)
        assert seen == expected


@BOTH
def test_failures_of_resets_are_counted_from_the_last_good_one(kind: str) -> None:
    with launched(kind, [suffering("reset", "raise", range(2, 100, 2), length=1)], episode_num=20) as manager:
        assert len(play(manager)[0]) == 20


@BOTH
def test_an_automatic_reset_that_keeps_failing_closes_the_manager(kind: str) -> None:
    with launched(kind, [suffering("reset", "raise", range(2, 100), length=1), {}]) as manager:
        with pytest.raises(EnvError, match=r"env 0 failed in reset .*KeyError"):
            play(manager)
        assert (manager.closed, states(manager), manager.ready_env) == (True, [VOID, VOID], [])


def test_a_reset_is_tried_again_while_another_env_is_stuck(gate: Gate) -> None:
    cfgs = [suffering("step", "gate", folder=gate.folder), suffering("reset", "raise", [2, 4], length=2), {}]
    with launched("async", cfgs, wait_num=2, timeout=0) as manager:
        assert list(manager.step(dict.fromkeys(range(3), 0))) == [1, 2]
        manager.reset({1: None})
        assert elapsed(manager) == {1: 0, 2: 1}
        for done in (False, True):
            assert manager.step({1: 0, 2: 0})[1].done == done
        assert eventually(lambda: 1 in manager.ready_obs)
        assert elapsed(manager) == {1: 0, 2: 3}
        gate.open(0)


@BOTH
def test_between_two_tries_passes_the_time_that_is_asked_for(kind: str, tmp_path: Path) -> None:
    class Clocked(Trial):
        def reset(self, **kwargs: Any) -> Any:
            with (tmp_path / "times").open("a") as file:
                file.write(f"{time.monotonic()}\n")
            return super().reset(**kwargs)

    with launched(kind, [suffering("reset", "raise", [1, 2])], Clocked, max_retry=2, retry_waiting_time=0.1):
        first, second, third = map(float, (tmp_path / "times").read_text().split())
        assert second - first >= 0.1
        assert third - second >= 0.1


@BOTH
def test_a_constructor_that_fails_when_an_env_is_renewed_closes_the_manager(kind: str, tmp_path: Path) -> None:
    before = belongings()

    class Fading(Trial):
        def __init__(self, cfg: Any) -> None:
            super().__init__(cfg)
            if self.life > 1:
                raise LookupError("no second life")

    manager = make(kind, [suffering("reset", "raise", folder=tmp_path), {}], Fading, retry_type="renew")
    with pytest.raises(EnvError, match="LookupError: no second life") as caught:
        manager.launch()
    assert isinstance(caught.value.__cause__, LookupError)
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    del caught
    assert left_since(before) == []


def test_a_constructor_that_hangs_when_an_env_is_renewed_ends_with_the_deadline(gate: Gate) -> None:
    before = belongings()

    class HangsAgain(Trial):
        def __init__(self, cfg: Any) -> None:
            super().__init__(cfg)
            if self.life > 1:
                wait_at_gate(self.folder, self.env_id)

    cfgs = [suffering("reset", "raise", folder=gate.folder, lives=[1]), {}]
    manager = make("async", cfgs, HangsAgain, retry_type="renew", reset_timeout=SOON)
    with pytest.raises(errors.EnvTimeoutError, match="env 0") as caught:
        manager.launch()
    assert manager.closed
    del caught
    assert left_since(before) == []


def test_an_env_of_many_agents_whose_child_dies_in_its_first_reset_is_tried_again(tmp_path: Path) -> None:
    class Frail(Pair):
        def reset(self) -> np.ndarray:
            if self.env_id == 0 and not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                os._exit(3)
            return super().reset()

    with launched("async", [{"shared": True}] * 2, Frail) as manager:
        assert states(manager) == [RUN, RUN]
        assert manager.step({0: [1, 2]})[0].reward.tolist() == [3]


# ---- calls that fail -----------------------------------------------------------------------------


class Visiting(SubprocessEnvManager):
    """Lists a method more."""

    @property
    def method_name_list(self) -> list[str]:
        return [*super().method_name_list, "visit"]


@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "several arguments"])
def test_an_exception_in_a_method_is_raised_and_harms_nobody(mishap: str) -> None:
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


# ---- close ---------------------------------------------------------------------------------------


@BOTH
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


@BOTH
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


@BOTH
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


@BOTH
def test_an_interpreter_that_ends_without_close_is_silent_and_leaves_nothing(kind: str, tmp_path: Path) -> None:
    out = run_well(
        f"""
        from support.manager_envs import make
        from support.process_envs import descendants
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
        from support.manager_envs import make, suffering
        from support.process_envs import descendants
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


# ---- what a review found -------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_a_seed_that_was_given_with_a_step_in_flight_is_the_one_of_the_reset(cls: Any) -> None:
    with cls([lambda: Walk({"length": 1})] * 2) as manager:
        manager.seed(7)
        manager.launch()
        first = manager.ready_obs
        manager.step({0: 0, 1: 0})
        manager.seed(7)
        manager.reset()
        again = manager.ready_obs
        assert all(np.array_equal(first[one], again[one]) for one in first)


def test_results_that_an_interrupted_call_took_are_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    with BaseEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        monkeypatch.setattr(manager._core, "_take", interrupt)
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
        manager._core.pool.send([0, 0], [0, 1])  # as if Ctrl-C had come right after it
        manager._core._torn = True
        manager.reset()
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]
        assert manager.elapsed == [1, 1]


def test_parameters_that_cannot_be_sent_change_nothing() -> None:
    with SyncSubprocessEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        with pytest.raises(InputError, match="expected what can be sent to a worker process: TypeError"):
            manager.reset({0: {"lock": threading.Lock()}})
        manager.reset({0: {}})
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


def test_a_neighbour_of_a_dead_env_is_brought_back_with_its_instructions() -> None:
    fns = [lambda: Walk({"fail_at": None}), lambda: Walk({})]
    with SyncSubprocessEnvManager(fns, num_workers=1) as manager:
        manager.seed(3, dynamic_seed=False)
        manager.launch()
        kill_worker(manager._core.pool, 0)
        with pytest.raises(EnvError):
            manager.step({0: 0})
        manager.reset()
        assert manager.dynamic_seed == [False, False]


def test_who_keeps_rewards_keeps_no_batches() -> None:
    with BaseEnvManager([lambda: Walk({"length": 1000})] * 2) as manager:
        manager.launch()
        kept = [manager.step({0: 0, 1: 0})[0].reward for _ in range(50)]
        assert manager._core.pool.stats()["batches_held"] <= 3
        assert len(kept) == 50


def test_the_callers_objects_are_its_own() -> None:
    class Lists(Walk):
        def _observation(self) -> Any:
            return {"seen": [1, 2]}

    with BaseEnvManager([Lists], shared_memory=False) as manager:
        manager.launch()
        step = manager.step({0: 0})[0]
        step.obs["seen"].append(99)
        manager.ready_obs[0]["seen"].append(98)
        assert manager.ready_obs[0] == {"seen": [1, 2]}


def test_an_env_that_cannot_be_built_says_so_where_it_is_looked_at() -> None:
    def broken() -> Any:
        raise AttributeError("inner")

    with pytest.raises(EnvError, match="env_ref: the constructor of env 0 failed: AttributeError: inner"):
        _ = BaseEnvManager([broken]).observation_space


def test_videos_of_envs_that_cannot_record_are_refused_at_once() -> None:
    with BaseEnvManager([ProbeTwin]) as manager:
        manager.launch()
        with pytest.raises(UnsupportedError, match=r"wrap it in stepmill\.envs\.DingEnvWrapper"):
            manager.enable_save_replay()
        assert list(manager.step({0: manager.action_space.sample()})) == [0]


def test_agents_that_are_paid_differently_are_all_told() -> None:
    class Modest(Pair):
        def __init__(self, cfg: Any = None) -> None:
            super().__init__(cfg)
            self.reward_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    with BaseEnvManager([Modest]) as manager:
        manager.launch()
        assert manager.step({0: [1, 2]})[0].reward.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda manager: manager.reset(5), InputError),
        (lambda manager: manager.reset(env_id=3.5), errors.EnvIdError),
    ],
)
def test_what_is_no_list_is_an_error_of_ours(call: Any, error: Any) -> None:
    with BaseEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        with pytest.raises(error, match="expected"):
            call(manager)
        manager.seed(np.array(4))
        manager.reset()
        assert list(manager.ready_obs) == [0, 1]


# ---- what another review found -------------------------------------------------------------------


@pytest.mark.parametrize("max_retry", [0, 1])
def test_a_reset_that_fails_is_seen_to_while_others_step(max_retry: int, gate: Gate) -> None:
    cfgs = [
        suffering("step", "gate", folder=gate.folder),
        suffering("reset", "raise", [2], folder=gate.folder, length=1),
    ]
    settings = {"max_retry": max_retry, "wait_num": 1, "timeout": None}
    manager = make("async", cfgs, **settings)
    try:
        manager.launch()
        join = doing(lambda: manager.step({0: 0, 1: 0}))
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]
        if max_retry == 0:
            with pytest.raises(EnvError, match="reset"):
                join()
            assert manager.closed
        else:
            assert eventually(lambda: count(gate.folder, "reset", 1) == 2)
            gate.open(0)
            join()
    finally:
        gate.open(0)
        manager.close()


@BOTH
def test_a_call_while_a_manager_launches_is_refused(kind: str, gate: Gate) -> None:
    manager = make(kind, [suffering("constructor", "gate", folder=gate.folder), {}])
    join = doing(manager.launch)
    assert gate.wait() == 0
    for call in (manager.launch, manager.close, lambda: manager.seed(1)):
        with pytest.raises(ConcurrentUseError):
            call()
    gate.open(0)
    join()
    assert list(manager.ready_obs) == [0, 1]
    manager.close()


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


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_an_env_is_reset_as_soon_as_it_ends_while_others_step(kind: str, gate: Gate) -> None:
    cfgs = [suffering("step", "gate", folder=gate.folder), {"folder": gate.folder, "length": 1}]
    with launched(kind, cfgs) as manager:
        join = doing(lambda: manager.step({0: 0, 1: 0}))
        assert gate.wait() == 0
        assert eventually(lambda: count(gate.folder, "reset", 1) == 2)
        gate.open(0)
        join()


def test_a_reset_that_is_interrupted_leaves_no_env_in_between(gate: Gate) -> None:
    with launched("async", [suffering("step", "gate", folder=gate.folder), {}], timeout=0, wait_num=1) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        manager._core._voided.add(0)  # as a reset that Ctrl-C ends while it waits for the step
        manager._core._torn = True
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
        core = manager._core
        core._arrived = NoRoom()
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0})
        core._arrived = {}
        assert manager.ready_obs == {}
        assert list(manager.step({})) == [0, 1]
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


@pytest.mark.parametrize("cls", [BaseEnvManager, SyncSubprocessEnvManager])
def test_a_reset_that_an_interrupt_kept_from_being_sent_is_sent(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with cls([lambda: Walk({"length": 1})] * 2) as manager:
        manager.launch()
        monkeypatch.setattr(manager._core, "_send_resets", interrupt)
        with pytest.raises(KeyboardInterrupt):
            manager.step({0: 0, 1: 0})
        monkeypatch.undo()
        ended = manager.step({})
        assert [one.done for one in ended.values()] == [True, True]
        assert manager.episode_count == {0: 1, 1: 1}
        while len(manager.ready_obs) < 2:
            pass
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]


def test_a_closed_manager_keeps_nothing_of_its_pool() -> None:
    manager = SyncSubprocessEnvManager([lambda: Walk({})] * 2)
    manager.launch()
    manager.step({0: 0, 1: 0})
    manager.close()
    assert not manager._core._places
    assert not manager._core._arrived


class OddTensor:
    """As torch's of a type that numpy has not."""

    def detach(self) -> OddTensor:
        return self

    def cpu(self) -> OddTensor:
        return self

    def numpy(self) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")


def test_tensors_that_numpy_cannot_hold_are_refused_in_our_words() -> None:
    with BaseEnvManager([lambda: Walk({})]) as manager:
        manager.launch()
        with pytest.raises(ActionError, match="expected numbers of a type that numpy has"):
            manager.step({0: OddTensor()})
        assert list(manager.step({0: 0})) == [0]
