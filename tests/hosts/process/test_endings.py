"""Process pools end, however it comes: no process, thread or descriptor is left, and nothing that was said is lost."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import EnvError, errors
from support.envs.faulty import DEATHS, FaultyEnv, SpawningEnv, act, send
from support.processes import belongings, descendants, left_since, signal_to, worker_pids
from support.subprocesses import run, run_well, start
from support.waiting import Gate, ends, eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")

START = """
import gc, json, os, signal, sys
from pathlib import Path
import stepmill
from stepmill import errors
from support.envs.faulty import *
from support.processes import *
from support.waiting import *
"""


def make(mishap: str = "", env_id: int = 1, num_envs: int = 4, num_workers: int = 2, **arguments: Any) -> Any:
    """A process pool in which one env, or each where ``env_id`` is -1, suffers a mishap."""
    config = {key: arguments.pop(key) for key in ("where", "at") if key in arguments}
    shared = {key: arguments.pop(key) for key in ("folder",) if key in arguments}
    configs = [{**shared, **config, "mishap": mishap} if env_id in (-1, i) else shared for i in range(num_envs)]
    return stepmill.make(
        FaultyEnv, num_envs=num_envs, num_workers=num_workers, env_config=configs, backend="process", **arguments
    )


# ---- close ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [4, 2], ids=["sync", "async"])
def test_close_leaves_nothing_and_closes_every_env(tmp_path: Path, batch_size: int) -> None:
    before = belongings()
    pool = make(folder=tmp_path, batch_size=batch_size)
    pool.reset()
    act(pool)
    assert belongings() != before
    pool.close()
    assert left_since(before) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"closed-{i}" for i in range(4)]
    assert pool.closed
    pool.close()
    for call in (pool.reset, pool.recv, pool.stats, pool.render, lambda: pool.call("visit")):
        with pytest.raises(errors.ClosedError):
            call()


def test_close_in_the_middle_of_flight_waits_for_the_running_steps(tmp_path: Path, gate: Gate) -> None:
    before = belongings()
    pool = make("gate", folder=gate.folder)
    pool.reset()
    send(pool)
    assert gate.wait() == 1
    gate.open(1)
    pool.close()
    assert left_since(before) == []
    assert len(list(tmp_path.glob("closed-*"))) == 4


class Clock:
    """`close` reads it when it begins to wait, then again and again: it is late once the healthy worker has ended."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._has_begun = False

    def monotonic(self) -> float:
        is_late = self._has_begun and self._file.exists()
        self._has_begun = True
        return 1e9 if is_late else 0.0


@pytest.mark.parametrize("mishap", ["loop", "gate", "C with the lock", "stopped"])
def test_close_ends_a_stuck_worker_by_force(gate: Gate, mishap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.hosts.process.process_host.time", Clock(gate.folder / "closed-3"))
    before = belongings()
    pool = make(mishap, folder=gate.folder)
    pool.reset()
    send(pool)
    assert gate.wait() == 1
    pids = worker_pids(pool)
    pool.close()
    assert all(ends(pid) for pid in pids)
    assert left_since(before) == []
    assert not (gate.folder / "closed-0").exists()


def test_close_ends_an_env_that_is_stuck_in_its_close(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.hosts.process.process_host.time", Clock(gate.folder / "closed-3"))
    before = belongings()
    pool = make("gate", where="close", folder=gate.folder)
    pool.close()
    assert left_since(before) == []


@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "broken text", "sys.exit"])
def test_exceptions_in_close_are_told_and_leave_no_env_open(tmp_path: Path, mishap: str) -> None:
    before = belongings()
    pool = make(mishap, where="close", folder=tmp_path)
    with pytest.raises(EnvError, match="env 1 failed in close") as caught:
        pool.close()
    assert (caught.value.env_id, caught.value.phase) == (1, "close")
    assert caught.value.__cause__ is not None
    assert "in _suffer" in "".join(caught.value.__cause__.__notes__)
    del caught
    assert pool.closed
    pool.close()
    assert left_since(before) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed-0", "closed-2", "closed-3"]


def test_all_exceptions_in_close_are_told() -> None:
    pool = make("raise", env_id=-1, where="close")
    with pytest.raises(EnvError) as caught:
        pool.close()
    assert sorted(error.env_id for error in caught.value.errors) == [0, 1, 2, 3]  # type: ignore[type-var]


@pytest.mark.parametrize("death", DEATHS)
def test_a_worker_that_dies_in_close_leaves_nothing(tmp_path: Path, death: str) -> None:
    before = belongings()
    pool = make(death, where="close", folder=tmp_path)
    with contextlib.suppress(errors.WorkerDiedError):
        pool.close()
    assert left_since(before) == []
    assert (tmp_path / "closed-3").exists()


def test_close_after_workers_died_leaves_nothing() -> None:
    before = belongings()
    pool = make("exit", env_id=-1)
    pool.reset()
    act(pool)
    act(pool)  # all are restarted
    for pid in worker_pids(pool):
        signal_to(pid)
    pool.close()
    assert left_since(before) == []


def test_a_batch_that_is_held_keeps_its_values_and_no_descriptor() -> None:
    before = belongings()
    pool = make()
    pool.reset()
    batch = pool.step(np.arange(4) / 4)
    pool.close()
    del pool
    assert left_since(before) == []
    assert (batch[1].tolist(), batch[0][:, 1].tolist()) == ([0.0, 0.25, 0.5, 0.75], [1.0] * 4)


def test_restarts_leave_nothing_behind() -> None:
    def kinds() -> list[str]:
        gc.collect()  # errors hold batches
        return sorted(re.sub(r"process \d+", "process", one) for one in belongings().elements())

    with make("exit", num_envs=2, at=[2]) as pool:
        pool.reset()
        for _ in range(3):  # a good step, a death, and the reset in a new worker
            act(pool)
        before = kinds()
        for _ in range(3 * 5):
            act(pool)
        assert pool.stats()["restarts"] == 6
        assert eventually(lambda: kinds() == before)


def test_what_envs_spawned_ends_with_close() -> None:
    before = belongings()
    with stepmill.make(SpawningEnv, backend="process") as pool:
        pids = pool.get_attr("pids")[0]
        assert set(pids) <= descendants()
    assert all(ends(pid) for pid in pids)
    assert left_since(before) == []


# ---- without close -------------------------------------------------------------------------------


@pytest.mark.parametrize("in_flight", [False, True])
def test_a_pool_that_is_collected_leaves_nothing(tmp_path: Path, in_flight: bool) -> None:
    before = belongings()
    pool = make(folder=tmp_path)
    pool.reset()
    send(pool)
    if not in_flight:
        pool.recv()
    del pool
    gc.collect()
    assert left_since(before) == []
    assert len(list(tmp_path.iterdir())) == 4, "the envs were closed"


@pytest.mark.usefixtures("impatient")
def test_a_collected_pool_with_a_stuck_worker_leaves_nothing(gate: Gate) -> None:
    before = belongings()
    pool = make("gate", folder=gate.folder)
    pool.reset()
    send(pool)
    assert gate.wait() == 1
    del pool
    gc.collect()
    assert left_since(before) == []


def test_a_pool_that_an_error_carries_ends_with_it() -> None:
    before = belongings()

    def fail() -> None:
        pool = make("exit", env_id=0)
        pool.reset()
        pool.step(np.zeros(4))

    with pytest.raises(errors.WorkerDiedError):
        fail()
    gc.collect()
    assert left_since(before) == []


@pytest.mark.parametrize("end", ["pass", "raise KeyError"])
def test_an_interpreter_that_exits_without_close_leaves_nothing(tmp_path: Path, end: str) -> None:
    finished = run(
        START
        + f"""
pool = stepmill.make(FaultyEnv, num_envs=2, num_workers=2, backend="process", folder={str(tmp_path)!r})
pool.reset()
send(pool)
print(json.dumps(sorted(descendants())), flush=True)
{end}
"""
    )
    assert finished.code == (0 if end == "pass" else 1)
    pids = json.loads(finished.out)
    assert len(pids) == 4, "the server, the template, two workers"
    assert all(ends(pid) for pid in pids)
    assert finished.err == "" if end == "pass" else finished.err.endswith("\nKeyError\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed-0", "closed-1"]


def test_a_killed_parent_takes_everything_along(tmp_path: Path) -> None:
    """Workers that are idle, those that are stuck, and what the envs spawned, in whatever session."""
    with start(
        START
        + f"""
gate = Gate(Path({str(tmp_path)!r}), 2)
spawning = stepmill.make(SpawningEnv, backend="process")
pool = stepmill.make(FaultyEnv, num_envs=2, num_workers=2, backend="process", mishap="gate", folder=gate.folder)
pool.reset()
send(pool)
gate.wait(), gate.wait()
print(json.dumps([spawning.get_attr("pids")[0], sorted(descendants())]), flush=True)
sys.stdin.read()
"""
    ) as process:
        assert process.stdout is not None
        spawned, pids = json.loads(process.stdout.readline())
        assert set(spawned) <= set(pids)
        assert len(pids) >= 9, "the server, two templates, three workers, and what was spawned"
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        process.kill()
        assert all(ends(pid, 20.0) for pid in pids)


# ---- fork ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("child_end", ["sys.exit(0)", "pool.close(); os._exit(0)"])
def test_a_forked_child_can_neither_use_nor_disturb_the_pool(child_end: str) -> None:
    out = run_well(
        START
        + f"""
pool = stepmill.make(FaultyEnv, num_envs=2, num_workers=2, backend="process")
pool.reset()
act(pool)
pids = worker_pids(pool)
send(pool)
sys.stdout.flush()
child = os.fork()
if child == 0:
    for call in (pool.recv, pool.reset, pool.stats, lambda: send(pool), lambda: pool.call("visit"), pool.render):
        try:
            call()
        except errors.ForkedError:
            print("refused")
    sys.stdout.flush()
    {child_end}
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print([row.elapsed for row in collect(pool).values()], [row.elapsed for row in act(pool).values()])
print(worker_pids(pool) == pids, pool.stats()["restarts"])
pool.close()
"""
    )
    assert out.splitlines() == ["refused"] * 6 + ["0", "[2, 2] [3, 3]", "True 0"]


def test_a_forked_child_can_make_a_pool_of_its_own() -> None:
    out = run_well(
        START
        + """
pool = stepmill.make(FaultyEnv, num_envs=2, backend="process")
pool.reset()
child = os.fork()
if child == 0:
    with stepmill.make(FaultyEnv, num_envs=2, backend="process") as own:
        own.reset()
        assert [row.elapsed for row in act(own).values()] == [1, 1]
    os._exit(5 if descendants() else 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print([row.elapsed for row in act(pool).values()])
"""
    )
    assert out.splitlines() == ["0", "[1, 1]"]


# ---- who starts the workers ----------------------------------------------------------------------


@pytest.mark.parametrize(("who", "when"), [("template", "in flight"), ("server", "idle"), ("server", "in flight")])
def test_a_pool_recovers_when_the_process_that_starts_its_workers_is_killed(
    who: str, when: str, tmp_path: Path
) -> None:
    out = run_well(
        START
        + f"""
gate = Gate(Path({str(tmp_path)!r}), 4)
pool = stepmill.make(
    FaultyEnv, num_envs=4, num_workers=2, backend="process", mishap="gate", at=[2], folder=gate.folder
)
pool.reset()
act(pool)
old = descendants()
template = parent_of(worker_pids(pool)[0])
victim = template if {who!r} == "template" else parent_of(template)
if {when!r} == "in flight":
    send(pool)
    gate.wait(), gate.wait()
signal_to(victim)
assert ends(victim)
rows = collect(pool) if {when!r} == "in flight" else act(pool)
print([(i, row.abnormal, type(row.error).__name__) for i, row in sorted(rows.items())])
for _ in range(2):
    print([row.elapsed for _, row in sorted(act(pool).items())])
assert pool.call("process", env_ids=[0, 2]) == tuple(worker_pids(pool))
gate.close()
pool.close()
end_servers()
assert eventually(lambda: not descendants())
assert all(ends(pid) for pid in old)
"""
    )
    lost = str([(i, True, "WorkerDiedError") for i in range(4)])
    assert out.splitlines() == [lost, "[0, 0, 0, 0]", "[1, 1, 1, 1]"]


# ---- what workers say ----------------------------------------------------------------------------

TALK = """
import logging, warnings

class Talking(FaultyEnv):
    def __init__(self, env_id=0):
        super().__init__(env_id=env_id)
        warnings.warn(f"built {env_id}")
    def step(self, action):
        print(f"printed {self.env_id}")
        print(f"complained {self.env_id}", file=sys.stderr)
        os.write(1, b"written %d\\n" % self.env_id)
        logging.getLogger("some.name").info("logged %d", self.env_id)
        logging.getLogger("some.name").debug("whispered %d", self.env_id)
        warnings.warn(f"odd {self.env_id}", DeprecationWarning)
        return super().step(action)
    def close(self):
        print(f"closed {self.env_id}", end="")

logging.basicConfig(level=logging.INFO, format="%(levelname)s|%(name)s|%(message)s")
warnings.simplefilter("always")
pool = stepmill.make(Talking, num_envs=2, num_workers=1, backend="process")
pool.reset()
act(pool)
pool.close()
"""


def test_what_workers_print_and_log_is_not_lost_and_says_which_env() -> None:
    finished = run(START + TALK)
    assert finished.code == 0
    for env_id in range(2):
        for word in ("printed", "written", "closed"):
            assert f"{word} {env_id}" in finished.out
        assert f"complained {env_id}" in finished.err
        assert f"[env {env_id}] INFO|some.name|logged {env_id}\n" in finished.err
        for warning in (f"UserWarning: built {env_id}", f"DeprecationWarning: odd {env_id}"):
            line = next(line for line in finished.err.splitlines() if warning in line)
            assert line.startswith(f"[env {env_id}] ")
    assert "whispered" not in finished.err


def test_what_a_worker_printed_before_it_died_is_not_lost(capfd: Any) -> None:
    class Printing(FaultyEnv):
        def step(self, action: Any) -> Any:
            os.write(2, b"the last words\n")
            return super().step(action)

    with stepmill.make(Printing, mishap="killed", backend="process") as pool:
        pool.reset()
        act(pool)
    assert "the last words" in capfd.readouterr().err


@pytest.mark.parametrize(("mishap", "says"), [("segfault", "Segmentation fault"), ("abort", "Aborted")])
def test_a_crash_shows_where_it_happened(capfd: Any, mishap: str, says: str) -> None:
    with make(mishap, env_id=2) as pool:
        pool.reset()
        pid = worker_pids(pool)[1]
        act(pool)
    err = capfd.readouterr().err
    assert f"stepmill: env 2 crashed in worker 1 (pid {pid}):\nFatal Python error: {says}" in err
    assert "faulty.py" in err


def test_a_crash_in_a_constructor_shows_the_env_too(capfd: Any) -> None:
    with pytest.raises(EnvError, match="it was killed by SIGSEGV"):
        make("segfault", env_id=3, where="constructor")
    assert "stepmill: env 3 crashed in worker 1 (pid " in capfd.readouterr().err


def test_a_crash_outside_of_envs_names_the_worker_alone(capfd: Any) -> None:
    with make() as pool:
        pool.reset()
        pid = worker_pids(pool)[0]
        signal_to(pid, signal.SIGABRT)
        assert ends(pid)
    assert f"stepmill: worker 0 (pid {pid}) crashed:\n" in capfd.readouterr().err


def test_workers_use_one_thread_of_numerical_libraries_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"]

    class Asked(FaultyEnv):
        def threads(self) -> list[str | None]:
            return [os.environ.get(name) for name in names]

    for name in names:
        monkeypatch.delenv(name, raising=False)
    with stepmill.make(Asked, num_envs=2, num_workers=2, backend="process") as pool:
        assert pool.call("threads") == (["1", "1", "1"],) * 2
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with stepmill.make(Asked, backend="process") as pool:
        assert pool.call("threads") == (["1", "3", "1"],)
    assert os.environ.get("MKL_NUM_THREADS") is None, "the caller keeps its own"
