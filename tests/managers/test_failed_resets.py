"""A seed, a reset or a constructor that fails in a manager is tried again, or ends it with the cause."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import EnvError, errors
from support.envs.contract import Pair
from support.envs.faulty import DEATHS, RAISED
from support.envs.managed import Trial, count, elapsed, launched, make, play, states, suffering
from support.manager_cases import MISSED_DEADLINE, RAISED_HERE, RUN, SERIAL_AND_ASYNC, VOID
from support.processes import belongings, left_since
from support.waiting import Gate, GateClock, doing, eventually, wait_at_gate

pytestmark = pytest.mark.usefixtures("deadline", "server")


ALWAYS = range(1, 1000)


# ---- a constructor that fails --------------------------------------------------------------------


@SERIAL_AND_ASYNC
@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "several arguments"])
def test_a_constructor_that_raises_is_the_cause_and_nothing_is_left(kind: str, mishap: str, tmp_path: Path) -> None:
    before = belongings()
    message, cause = RAISED[mishap]
    cfgs = [{"folder": tmp_path}, suffering("constructor", mishap, folder=tmp_path, lives=[1])]
    # One after the other: env 0 has been built when env 1 fails.
    together: dict[str, Any] = {} if kind == "serial" else {"num_workers": 1}
    if kind == "ray":
        together["backend"] = stepmill.Ray(num_actors=1)
    manager = make(kind, cfgs, **together)
    with pytest.raises(EnvError, match=f"the constructor of env 1 .*{message}") as caught:
        manager.launch()
    assert isinstance(caught.value.__cause__, cause if kind != "serial" else RAISED_HERE[mishap])
    del caught
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    assert left_since(before) == []
    assert count(tmp_path, "closed", 0) == 1
    manager.launch()
    assert states(manager) == [RUN, RUN]
    manager.close()


@pytest.mark.parametrize("mishap", ["exit", "killed", "gate"])
def test_a_child_that_dies_or_hangs_in_a_constructor_is_an_error_and_nothing_is_left(
    mishap: str, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mishap == "gate":
        GateClock.put(monkeypatch, gate)
    before = belongings()
    cfgs = [{}, suffering("constructor", mishap, folder=gate.folder)]
    # One worker: env 0 has been built, and the caller has heard of it, before env 1 comes to the gate.
    manager = make("async", cfgs, connect_timeout=1 if mishap == "gate" else 60, num_workers=1)
    with pytest.raises(errors.EnvTimeoutError if mishap == "gate" else EnvError) as caught:
        manager.launch()
    assert caught.value.env_id == 1
    assert ("wait_at_gate" if mishap == "gate" else DEATHS[mishap]) in str(caught.value)
    del caught
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    assert left_since(before) == []


# ---- a seed or a reset that fails ----------------------------------------------------------------


@SERIAL_AND_ASYNC
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
    assert isinstance(caught.value.__cause__, cause if kind != "serial" else RAISED_HERE[mishap])
    assert any("failed 2 times, and the manager is closed" in note for note in caught.value.__notes__)
    assert (manager.closed, states(manager)) == (True, [VOID] * 3)
    with pytest.raises(errors.ClosedError):
        manager.ready_obs  # noqa: B018


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
def test_a_reset_is_tried_again_in_the_same_env(kind: str, tmp_path: Path) -> None:
    cfgs = [suffering("reset", "raise", [1, 3], folder=tmp_path, length=2), {"length": 2}]
    with launched(kind, cfgs, episode_num=2) as manager:
        assert [len(one) for one in play(manager).values()] == [2, 2]
        assert (count(tmp_path, "tried", 0), count(tmp_path, "reset", 0)) == (4, 2)
        assert manager.life == [1, 1]


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
def test_a_renewed_env_goes_on_with_static_seeds_and_its_parameters(kind: str, tmp_path: Path) -> None:
    cfgs = [suffering("reset", "raise", [2, 3], folder=tmp_path, lives=[1])]
    with make(kind, cfgs, retry_type="renew") as manager:
        manager.seed(5, dynamic_seed=False)
        manager.launch([{"a": 1}])
        manager.reset()
        assert (manager.life, manager.last_seed, manager.reset_kwargs) == ([2], [5], [{"a": 1}])
        manager.reset()
        assert (manager.life, manager.last_seed) == ([2], [5])


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
def test_failures_of_resets_are_counted_from_the_last_good_one(kind: str) -> None:
    with launched(kind, [suffering("reset", "raise", range(2, 100, 2), length=1)], episode_num=20) as manager:
        assert len(play(manager)[0]) == 20


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
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
    manager = make("async", cfgs, HangsAgain, retry_type="renew", reset_timeout=MISSED_DEADLINE)
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


@pytest.mark.parametrize("max_retry", [0, 1])
def test_a_reset_that_fails_is_seen_to_while_others_step(max_retry: int, gate: Gate) -> None:
    cfgs = [
        suffering("step", "gate", folder=gate.folder),
        {"mishaps": {"step": ("gate", [1]), "reset": ("raise", [2])}, "folder": gate.folder, "length": 1},
    ]
    settings = {"max_retry": max_retry, "wait_num": 1, "timeout": None}
    manager = make("async", cfgs, **settings)
    try:
        manager.launch()
        join = doing(lambda: manager.step({0: 0, 1: 0}))
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]
        gate.open(1)  # its episode ends, and is followed by a reset
        assert gate.wait() == 1
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
