"""``backend="auto"`` finds envs that mostly wait and gives them a worker each; and what it says about its choices."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill import _native
from stepmill.hosts import auto
from stepmill.hosts.process.trial import StepCost, Stopwatch
from stepmill.settings import check_settings
from support.envs.unmovable import Recorded, Walk
from support.waiting import eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")

LONG_S = 60.0  # for a trial that will end: a machine under load may take its time
ENVS = min(_native.available_cores() + 2, 64)


class Waiting(Walk):
    """Waits in each step, as for a simulator elsewhere."""

    def step(self, action: int) -> Any:
        select.select([], [], [], 0.3)
        return super().step(action)


class Working(Walk):
    """Works in each step, for more than a moment."""

    def step(self, action: int) -> Any:
        sum(range(300_000))
        return super().step(action)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_HEAVY_S", LONG_S)
    monkeypatch.setattr(auto, "_MOST_S", LONG_S)


def worker_count(pool: Any) -> int:
    assert pool.backend == "process"
    count = len(pool.stats()["workers"])
    assert pool.spec.config["num_workers"] == count
    return count


# ---- how many workers ----------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
def test_envs_that_wait_have_a_worker_each(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stepmill"), stepmill.make(Waiting, num_envs=ENVS) as pool:
        assert worker_count(pool) == ENVS
        pool.reset()
    (said,) = caplog.messages
    assert said.startswith(f"Waiting: the {ENVS} envs run in {ENVS} worker processes: a step took ")
    assert said.endswith(" µs, most of which was waiting")


def test_envs_whose_step_is_longer_than_the_trial_have_a_worker_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auto, "_HEAVY_S", LONG_S)
    monkeypatch.setattr(auto, "_MOST_S", 3.0)
    with (
        caplog.at_level(logging.INFO, "stepmill"),
        stepmill.make(Recorded, num_envs=ENVS, folder=str(tmp_path), mishap="hangs", where="step") as pool,
    ):
        assert worker_count(pool) == ENVS
    assert caplog.messages[-1].endswith(": a trial of 3 s was too short for a step, most of which was waiting")


@pytest.mark.usefixtures("patient")
def test_envs_that_work_have_a_worker_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "is_faster_in_processes", lambda cost, settings: True)
    with stepmill.make(Working, num_envs=ENVS) as pool:
        assert worker_count(pool) == min(ENVS, _native.available_cores())


@pytest.mark.parametrize(("num_envs", "free", "workers"), [(9, 1 << 40, 9), (200, 1 << 40, 64), (9, 0, 2), (9, 70, 5)])
def test_there_are_at_most_64_and_they_fit_into_memory(
    num_envs: int, free: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auto._native, "available_cores", lambda: 2)
    monkeypatch.setattr(auto, "free_bytes", lambda: free << 20)
    settings = check_settings(num_envs=num_envs, reward_dtype="float64")
    assert auto._workers_that_wait(settings) == workers


def test_the_free_memory_is_known() -> None:
    assert 0 < auto.free_bytes() < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_waiting_takes_no_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto._native, "available_cores", lambda: 1)
    settings = check_settings(num_envs=8, num_workers=8, reward_dtype="float64")
    assert auto.is_faster_in_processes(StepCost(1e-3, 0.0, waits=True), settings)
    assert not auto.is_faster_in_processes(StepCost(1e-3, 0.0), settings)


# ---- what waiting is -----------------------------------------------------------------------------


def test_a_process_that_waits_and_one_that_works_are_told_apart() -> None:
    codes = {"waits": "input()", "works": "while True: pass"}
    below = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    codes["lets others work"] = below
    started = {
        name: subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, start_new_session=True)
        for name, code in codes.items()
    }
    try:
        watches = {name: Stopwatch(process.pid) for name, process in started.items()}
        assert eventually(watches["waits"].mostly_waits)
        # They were starting when the watch was made, so it may take a moment until this holds.
        for name in ("works", "lets others work"):
            assert eventually(lambda name=name: not watches[name].mostly_waits()), name
    finally:
        for process in started.values():
            os.killpg(process.pid, 9)
            process.communicate()


def test_a_trial_may_be_over_before_its_stopwatch_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short trial is: where the caller has to wait for a core, the worker has ended and is buried by then."""

    def late(pid: int) -> Stopwatch:
        assert eventually(lambda: not Path(f"/proc/{pid}").exists())
        return Stopwatch(pid)

    monkeypatch.setattr("stepmill.hosts.process.caller.launcher.Stopwatch", late)
    monkeypatch.setattr(auto, "_HEAVY_S", LONG_S)
    monkeypatch.setattr(auto, "_MOST_S", LONG_S)
    monkeypatch.setattr(auto, "is_faster_in_processes", lambda cost, settings: False)
    with stepmill.make(Walk, num_envs=2) as pool:
        assert pool.backend == "inline"


# ---- what the log says ---------------------------------------------------------------------------


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_the_log_says_what_was_chosen_and_why(
    backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(auto, "is_faster_in_processes", lambda cost, settings: backend == "process")
    with caplog.at_level(logging.INFO, "stepmill"), stepmill.make(Walk, num_envs=2) as pool:
        assert pool.backend == backend
    where = "the calling thread" if backend == "inline" else f"{pool.spec.config['num_workers']} worker processes"
    (said,) = caplog.messages
    assert said.startswith(f"Walk: the 2 envs run in {where}: a step took ")


@pytest.mark.parametrize(
    ("task", "arguments", "words"),
    [
        (Walk, {"num_envs": 1}, "the calling thread: there is one env"),
        ([Walk, Waiting], {}, "processes: without a trial, because they are heavy or of several kinds"),
    ],
    ids=["one", "kinds"],
)
def test_the_log_says_why_there_was_no_trial(
    task: Any, arguments: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "stepmill"), stepmill.make(task, **arguments):
        assert words in caplog.text


def test_nothing_is_said_where_the_backend_was_given(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "stepmill"):
        for backend in ("inline", "process"):
            stepmill.make(Walk, num_envs=2, backend=backend).close()
    assert caplog.messages == []
