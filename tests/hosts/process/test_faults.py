"""Envs that raise, and worker processes that die: every action has its one result, and no other env notices."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import EnvError, errors
from support.envs import ProbeTwin
from support.envs.faulty import DEATHS, RAISED, FaultyEnv, Row, act, collect, outcome, send
from support.probes import MODES
from support.processes import belongings, descendants, kill_worker, left_since, worker_pids
from support.waiting import Gate, ends, eventually

pytestmark = pytest.mark.usefixtures("deadline", "server")


ZEROS = [0.0, 0.0]


# Six envs on three workers: 2 is the one that fails, 3 lives in its process, the others do not.
N, FAULTY, NEIGHBOUR, OTHERS = 6, 2, 3, [0, 1, 4, 5]
SIZES = pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
BOTH = pytest.mark.parametrize("on_error", ["raise", "restart"])


# Where all four pairs would say nothing new.
WAYS = pytest.mark.parametrize(("batch_size", "on_error"), [(N, "raise"), (2, "restart")], ids=["sync", "async"])


def make(mishap: str = "", *, env_id: int = FAULTY, num_envs: int = N, **arguments: Any) -> Any:
    """A process pool in which one env, or each where ``env_id`` is -1, suffers a mishap."""
    config = {key: arguments.pop(key) for key in ("where", "at", "folder", "length") if key in arguments}
    whole = {**config, "mishap": mishap}
    well = {"length": config["length"]} if "length" in config else {}
    configs = [whole if env_id in (-1, i) else well for i in range(num_envs)]
    settings = {"num_workers": max(num_envs // 2, 1), "backend": "process", **arguments}
    return stepmill.make(FaultyEnv, num_envs=num_envs, env_config=configs, **settings)


def assert_failed(row: Row, on_error: str, last: list[float] = ZEROS) -> None:
    """A row as every failure fills it; ``last`` is the last good observation."""
    assert (row.abnormal, row.truncated, row.terminated, row.reward) == (True, True, False, 0.0)
    assert row.obs == (last if on_error == "restart" else ZEROS)
    assert (row.error is not None) == (on_error == "raise")


def causes_of(error: BaseException) -> list[BaseException]:
    """What led to an error, the nearest first."""
    cause = error.__cause__
    return [] if cause is None else [cause, *causes_of(cause)]


# ---- exceptions ----------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("mishap", RAISED)
def test_an_exception_in_step_fills_its_row(mishap: str, batch_size: int, on_error: str) -> None:
    message, cause = RAISED[mishap]
    with (
        make(mishap, at=[2], batch_size=batch_size, on_error=on_error) as pool,
        stepmill.make(FaultyEnv, num_envs=N, backend="inline") as well,
    ):
        pids = worker_pids(pool)
        pool.reset()
        well.reset()
        before, expected = act(pool), act(well)
        assert before == expected
        rows, expected = act(pool), act(well)
        assert_failed(rows[FAULTY], on_error, before[FAULTY].obs)
        assert {i: row for i, row in rows.items() if i != FAULTY} == {
            i: row for i, row in expected.items() if i != FAULTY
        }
        if error := rows[FAULTY].error:
            assert type(error) is EnvError
            assert (error.env_id, error.phase, error.episode, error.step) == (FAULTY, "step", 1, 1)
            with pytest.raises(EnvError, match=rf"env 2 failed in step \(episode 1, step 1\): .*{message}"):
                raise error
            assert isinstance(error.__cause__, cause)
            assert "in _suffer" in "".join(error.__cause__.__notes__), "the traceback of the worker"
        elapsed = [[row.elapsed for _, row in sorted(act(pool).items())] for _ in range(2)]
        assert elapsed == [[3, 3, 0, 3, 3, 3], [4, 4, 1, 4, 4, 4]], "it is reset, and all go on"
        assert worker_pids(pool) == pids, "an exception costs no process"


@pytest.mark.parametrize("mishap", ["raise", "unpicklable"])
def test_an_exception_shows_the_traceback_of_the_worker_when_it_is_printed(mishap: str) -> None:
    with make(mishap) as pool:
        pool.reset()
        error = act(pool)[FAULTY].error
        assert error is not None
        text = "".join(traceback.format_exception(error))
        assert "In the worker process" in text
        assert "in step" in text
        assert "broken" in text


@WAYS
@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "broken text", "sys.exit", "exit", "segfault"])
def test_a_failing_reset_fills_its_row(mishap: str, batch_size: int, on_error: str) -> None:
    with (
        make(mishap, where="reset", num_workers=N, batch_size=batch_size, on_error=on_error) as pool,
        stepmill.make(FaultyEnv, num_envs=N, backend="inline") as well,
    ):
        pool.async_reset()
        well.reset()
        rows, expected = collect(pool), act(well)
        assert_failed(rows[FAULTY], on_error)
        assert not any(rows[i].abnormal for i in range(N) if i != FAULTY)
        if error := rows[FAULTY].error:
            assert error.phase == "reset"
            with pytest.raises(EnvError, match="env 2 failed in reset"):
                raise error
        rows = act(pool)
        if mishap in RAISED:  # a new process fails at its first reset again
            assert (rows[FAULTY].abnormal, rows[FAULTY].elapsed, rows[FAULTY].reward) == (False, 0, 0.0)
        else:
            assert_failed(rows[FAULTY], on_error)
        assert [rows[i] for i in OTHERS] == [expected[i] for i in OTHERS]


def test_a_failed_reset_carries_what_reset_would_have_returned() -> None:
    with make("exit", where="reset", num_workers=N) as pool:
        with pytest.raises(errors.WorkerDiedError, match="env 2 failed in reset") as caught:
            pool.reset()
        obs, info = caught.value.batch
        assert info["abnormal"].tolist() == [False, False, True, False, False, False]
        assert (info["env_id"].tolist(), obs[FAULTY].tolist()) == (list(range(N)), ZEROS)


def test_an_interrupt_that_an_env_raises_is_a_failure_of_that_env() -> None:
    class Interrupted(ProbeTwin):
        def step(self, action: Any) -> Any:
            raise KeyboardInterrupt

    with stepmill.make([ProbeTwin, Interrupted], num_workers=2, backend="process") as pool:
        pool.reset()
        rows = act(pool)
        assert_failed(rows[1], "raise")
        assert isinstance(rows[1].error.__cause__, KeyboardInterrupt)  # type: ignore[union-attr]
        assert not rows[0].abnormal


# ---- deaths --------------------------------------------------------------------------------------


@WAYS
@pytest.mark.parametrize("death", DEATHS)
def test_a_dying_worker_takes_only_its_own_envs_along(death: str, batch_size: int, on_error: str) -> None:
    with (
        make(death, at=[2], batch_size=batch_size, on_error=on_error) as pool,
        stepmill.make(FaultyEnv, num_envs=N, backend="inline") as well,
    ):
        pool.reset()
        well.reset()
        before, expected = act(pool), act(well)
        assert before == expected
        rows, expected = act(pool, FAULTY, *OTHERS), act(well)
        assert_failed(rows[FAULTY], on_error, before[FAULTY].obs)
        assert [rows[i] for i in OTHERS] == [expected[i] for i in OTHERS]
        died = rows[FAULTY].error
        rows, expected = act(pool, NEIGHBOUR, *OTHERS), act(well)
        assert_failed(rows[NEIGHBOUR], on_error, before[NEIGHBOUR].obs)
        assert [rows[i] for i in OTHERS] == [expected[i] for i in OTHERS]
        if died:
            for error, env_id in ((died, FAULTY), (rows[NEIGHBOUR].error, NEIGHBOUR)):
                assert (error.env_id, error.phase, error.episode, error.step) == (env_id, "step", 1, 1)
                with pytest.raises(errors.WorkerDiedError, match=rf"env {env_id} failed in step .*{DEATHS[death]}"):
                    raise error
        rows, expected = act(pool), act(well)
        assert [rows[i].elapsed for i in (FAULTY, NEIGHBOUR)] == [0, 0], "the action resets them"
        assert not any(row.abnormal for row in rows.values())
        assert [rows[i] for i in OTHERS] == [expected[i] for i in OTHERS]
        rows, expected = act(pool), act(well)
        assert [rows[i].elapsed for i in range(N)] == [5, 5, 1, 1, 5, 5]
        assert [rows[i] for i in OTHERS] == [expected[i] for i in OTHERS]
        assert pool.stats()["restarts"] == 1


@BOTH
@SIZES
def test_neighbours_that_were_in_flight_come_back_abnormal_too(gate: Gate, batch_size: int, on_error: str) -> None:
    with make("gate, then exit", folder=gate.folder, batch_size=batch_size, on_error=on_error) as pool:
        pool.reset()
        send(pool, FAULTY)
        assert gate.wait() == FAULTY
        send(pool, NEIGHBOUR, *OTHERS)
        gate.open(FAULTY)
        rows = collect(pool)
        assert sorted(rows) == list(range(N)), "every action has its result"
        assert {i for i in rows if rows[i].abnormal} == {FAULTY, NEIGHBOUR}
        for env_id in (FAULTY, NEIGHBOUR):
            if on_error == "raise":
                assert isinstance(rows[env_id].error, errors.WorkerDiedError)
                assert "exited with code 7" in str(rows[env_id].error)
        rows = act(pool, NEIGHBOUR)
        assert (rows[NEIGHBOUR].abnormal, rows[NEIGHBOUR].elapsed) == (False, 0), "told only once"


@SIZES
def test_results_not_yet_received_stand(batch_size: int) -> None:
    with (
        make("exit", batch_size=batch_size) as pool,
        stepmill.make(FaultyEnv, num_envs=N, backend="inline") as well,
    ):
        pool.reset()
        well.reset()
        expected = act(well)
        send(pool, NEIGHBOUR)
        assert pool.call("visit", env_ids=[NEIGHBOUR]) == ((1, None),)  # its step is done
        send(pool, FAULTY)
        rows = collect(pool)
        assert rows[NEIGHBOUR] == expected[NEIGHBOUR]
        assert_failed(rows[FAULTY], "raise")
        rows = act(pool, NEIGHBOUR)
        assert_failed(rows[NEIGHBOUR], "raise")
        assert act(pool, NEIGHBOUR)[NEIGHBOUR].elapsed == 0


def test_infos_of_results_not_yet_received_stand() -> None:
    class Telling(FaultyEnv):
        def step(self, action: Any) -> Any:
            *rest, _ = super().step(action)
            return *rest, {"told": f"by env {self.env_id}"}

    with stepmill.make(
        Telling, num_envs=2, num_workers=1, backend="process", env_config=[{}, {"mishap": "exit"}]
    ) as pool:
        pool.reset()
        send(pool, 0)
        pool.call("visit", env_ids=[0])
        send(pool, 1)
        with pytest.raises(errors.WorkerDiedError) as caught:
            pool.recv()
        info = caught.value.batch[4]
        assert (info["told"].tolist(), info["_told"].tolist()) == (["by env 0", None], [True, False])


@BOTH
def test_an_idle_worker_that_is_killed_from_outside(on_error: str) -> None:
    with make(on_error=on_error) as pool:
        pool.reset()
        before = act(pool)
        pid = kill_worker(pool, 1)
        assert ends(pid)
        rows = act(pool)
        assert sorted(i for i in rows if rows[i].abnormal) == [FAULTY, NEIGHBOUR]
        for env_id in (FAULTY, NEIGHBOUR):
            assert_failed(rows[env_id], on_error, before[env_id].obs)
            assert on_error == "restart" or "SIGKILL (from another process, or from" in str(rows[env_id].error)
        assert [row.elapsed for row in act(pool).values()] == [3, 3, 0, 0, 3, 3]


def test_a_reset_after_an_idle_worker_died_begins_anew() -> None:
    with make() as pool:
        pool.reset()
        act(pool)
        kill_worker(pool, 1)
        assert eventually(lambda: not pool.stats()["workers"][1]["alive"])
        _, info = pool.reset([NEIGHBOUR])
        assert "abnormal" not in info
        rows = act(pool, FAULTY, NEIGHBOUR)
        assert_failed(rows[FAULTY], "raise")
        assert (rows[NEIGHBOUR].abnormal, rows[NEIGHBOUR].elapsed) == (False, 1)
        kill_worker(pool, 1)
        assert eventually(lambda: not pool.stats()["workers"][1]["alive"])
        assert "abnormal" not in pool.reset()[1]
        assert [row.elapsed for row in act(pool).values()] == [1] * N


@SIZES
def test_a_worker_killed_from_outside_in_the_middle_of_a_step(gate: Gate, batch_size: int) -> None:
    with make("gate", folder=gate.folder, batch_size=batch_size) as pool:
        pool.reset()
        send(pool, FAULTY, *OTHERS)
        assert gate.wait() == FAULTY
        kill_worker(pool, 1)
        rows = collect(pool)
        assert [i for i in rows if rows[i].abnormal] == [FAULTY]
        assert "SIGKILL" in str(rows[FAULTY].error)


def test_all_workers_die_at_once() -> None:
    with make("exit", env_id=-1, at=[2], num_workers=N) as pool:
        pool.reset()
        act(pool)
        with pytest.raises(errors.WorkerDiedError) as caught:
            pool.step(np.zeros(N))
        assert sorted(error.env_id for error in caught.value.errors) == list(range(N))
        assert caught.value.errors[0] is caught.value
        assert caught.value.batch[4]["abnormal"].all()
        assert [row.elapsed for row in act(pool).values()] == [0] * N


def test_what_a_dead_worker_spawned_dies_with_it() -> None:
    class Spawning(ProbeTwin):
        def __init__(self) -> None:
            super().__init__()
            import subprocess

            sleep = ["sleep", "1000"]
            self.children = [subprocess.Popen(sleep), subprocess.Popen(sleep, start_new_session=True)]
            self.pids = [child.pid for child in self.children]

    with stepmill.make(Spawning, backend="process") as pool:
        pids = pool.get_attr("pids")[0]
        assert set(pids) <= descendants()
        kill_worker(pool, 0)
        assert all(ends(pid) for pid in pids)


# ---- constructors --------------------------------------------------------------------------------


@pytest.mark.parametrize("mishap", [*RAISED, *DEATHS])
def test_a_constructor_that_fails_at_the_start_leaves_nothing(mishap: str) -> None:
    before = belongings()
    message, cause = RAISED[mishap] if mishap in RAISED else (DEATHS[mishap], type(None))
    with pytest.raises(EnvError, match=rf"env 2\b.*{message}") as caught:
        make(mishap, where="constructor")
    assert (caught.value.env_id, caught.value.phase) == (FAULTY, "constructor")
    assert isinstance(caught.value.__cause__, cause)
    if mishap in RAISED:
        assert "in _suffer" in "".join(caught.value.__cause__.__notes__)  # type: ignore[union-attr]
    assert left_since(before) == []


def test_envs_that_were_built_are_closed_when_a_later_constructor_fails(tmp_path: Path) -> None:
    configs = [{"folder": tmp_path}, {"mishap": "raise", "where": "constructor"}]
    with pytest.raises(EnvError, match="the constructor of env 1"):
        stepmill.make(FaultyEnv, num_envs=2, num_workers=1, env_config=configs, backend="process")
    assert (tmp_path / "closed-0").exists()


@WAYS
@pytest.mark.parametrize("mishap", ["raise", "several arguments", "exit", "killed"])
def test_a_constructor_that_fails_at_a_restart(tmp_path: Path, mishap: str, batch_size: int, on_error: str) -> None:
    told = tmp_path / "mishap"
    told.write_text("")
    with make(
        "", where="constructor", folder=tmp_path, batch_size=batch_size, on_error=on_error, max_restarts=9
    ) as pool:
        pool.reset()
        before = act(pool)
        told.write_text(mishap)
        pid = kill_worker(pool, 1)
        assert ends(pid)
        rows = act(pool)
        for env_id in (FAULTY, NEIGHBOUR):
            assert_failed(rows[env_id], on_error, before[env_id].obs)
        for _ in range(2):  # as often as it is tried
            rows = act(pool)
            for env_id in (FAULTY, NEIGHBOUR):
                assert_failed(rows[env_id], on_error, before[env_id].obs)
                if error := rows[env_id].error:
                    assert error.phase == "constructor"
                    if mishap in RAISED:
                        causes = causes_of(error)
                        assert isinstance(causes[0] if env_id == FAULTY else causes[-1], RAISED[mishap][1])
                    else:
                        assert type(error) is errors.WorkerDiedError
                        assert error.__cause__ is None
                        assert f"{DEATHS[mishap]}" in str(error)
        told.write_text("")
        rows = act(pool)
        assert not any(row.abnormal for row in rows.values())
        assert [rows[i].elapsed for i in range(N)] == [5, 5, 0, 0, 5, 5]


def test_the_cause_of_a_failed_restart_is_that_of_the_last_one(tmp_path: Path) -> None:
    told = tmp_path / "mishap"
    told.write_text("")
    with make("", where="constructor", folder=tmp_path, env_id=0, num_envs=1) as pool:
        pool.reset()
        told.write_text("raise")
        kill_worker(pool, 0)
        act(pool)
        error = act(pool)[0].error
        assert isinstance(error.__cause__, KeyError)  # type: ignore[union-attr]
        told.write_text("exit")
        error = act(pool)[0].error
        assert error is not None
        assert error.__cause__ is None
        assert "exited with code 7" in str(error)


# ---- after a failure -----------------------------------------------------------------------------


@pytest.mark.parametrize(("mishap", "on_error"), [("raise", "restart"), ("exit", "raise"), ("exit", "restart")])
@pytest.mark.parametrize("mode", MODES)
def test_after_a_failure_the_env_goes_on_by_its_autoreset_mode(mode: str, mishap: str, on_error: str) -> None:
    with make(mishap, at=[2], num_workers=N, autoreset=mode, on_error=on_error) as pool:
        pool.reset()
        act(pool)
        rows = act(pool)
        assert [i for i in rows if rows[i].abnormal] == [FAULTY]
        first = 0
        if mode == "disabled":
            for _ in range(2):
                with pytest.raises(errors.NeedsResetError, match="env 2"):
                    send(pool)
            assert "abnormal" not in pool.reset([FAULTY])[1]
            first = 1
        rows = act(pool)
        assert not any(row.abnormal or row.truncated for row in rows.values())
        assert [rows[i].elapsed for i in range(N)] == [3, 3, first, 3, 3, 3]
        assert rows[FAULTY].reward == (3 / 8 if mode == "disabled" else 0.0)
        assert rows[FAULTY].obs[0] != 0.0


@BOTH
@pytest.mark.parametrize("mishap", ["raise", "unpicklable", "exit", "killed"])
def test_same_step_keeps_a_good_end_when_the_reset_after_it_fails(mishap: str, on_error: str) -> None:
    with make(mishap, where="reset", at=[2], length=2, num_workers=N, autoreset="same_step", on_error=on_error) as pool:
        pool.reset()
        before = act(pool)
        (obs, reward, terminated, truncated, info), error = outcome(lambda: pool.step(np.full(N, 0.5)))
        assert (error is None) == (on_error == "restart")
        assert info["abnormal"].tolist() == [False, False, True, False, False, False]
        assert error is None or error.phase == "reset"
        assert (reward.tolist(), terminated.tolist(), truncated.any()) == ([0.5] * N, [True] * N, False)
        assert info["episode_length"].tolist() == [2] * N
        final = [before[FAULTY].obs[0], 2.0]
        assert obs[FAULTY].tolist() == info["final_obs"][FAULTY].tolist() == final
        rows = act(pool)
        assert [rows[i].elapsed for i in range(N)] == [1, 1, 0, 1, 1, 1]
        assert (rows[FAULTY].abnormal, rows[FAULTY].reward) == (False, 0.0)


@pytest.mark.parametrize("mishap", ["raise", "exit"])
def test_max_restarts_counts_failures_with_no_good_step_between(mishap: str) -> None:
    with make(mishap, env_id=0, num_envs=1, at=range(1, 100), on_error="restart", max_restarts=3) as pool:
        last = pool.reset()[0][0].tolist()
        for _ in range(2):
            assert_failed(act(pool)[0], "restart", last)
            row = act(pool)[0]
            assert (row.abnormal, row.elapsed) == (False, 0), "a reset is no good step"
            last = row.obs
        for _ in range(2):
            rows = act(pool)
            assert rows[0].abnormal
            assert rows[0].error is not None
            assert act(pool)[0].elapsed == 0, "the pool goes on"


@pytest.mark.parametrize("mishap", ["raise", "exit"])
def test_a_good_step_makes_the_count_begin_anew(mishap: str) -> None:
    with make(mishap, env_id=0, num_envs=1, at=range(2, 100, 2), on_error="restart", max_restarts=2) as pool:
        pool.reset()
        seen = [act(pool)[0] for _ in range(12)]
        assert [row.abnormal for row in seen] == [False, True, False] * 4, "a good step, a failure, the reset"
        assert all(row.error is None for row in seen)


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_with_no_restart_allowed_the_first_death_raises(max_restarts: int) -> None:
    with make("exit", on_error="restart", max_restarts=max_restarts) as pool:
        pool.reset()
        assert isinstance(act(pool, FAULTY)[FAULTY].error, errors.WorkerDiedError)


def test_restart_has_no_last_observation_of_an_env_that_never_gave_one() -> None:
    with make("exit", where="reset", at=[1], num_workers=N, on_error="restart") as pool:
        obs, info = pool.reset()
        assert info["abnormal"].tolist() == [False, False, True, False, False, False]
        assert obs[FAULTY].tolist() == ZEROS
        assert (obs[OTHERS] != 0).any(axis=1).all()


def test_the_views_tell_a_death_as_a_truncation() -> None:
    with make("exit", env_type="gym", env_id=0, num_envs=1, on_error="restart") as pool:
        pool.reset()
        _, reward, done, info = pool.step(np.ones(1))
        assert (reward.tolist(), done.tolist(), info["TimeLimit.truncated"].tolist()) == ([0.0], [True], [True])
    with make("exit", env_type="dm", env_id=0, num_envs=1) as pool:
        pool.reset()
        with pytest.raises(errors.WorkerDiedError) as caught:
            pool.step(np.ones(1))
        assert (caught.value.batch.step_type.tolist(), caught.value.batch.discount.tolist()) == ([2], [1.0])


@SIZES
def test_every_action_has_one_result_whatever_fails(batch_size: int) -> None:
    """Each env fails in its own rhythm, and all are always in flight."""
    mishaps = ["raise", "exit", "", "killed", "sys.exit", "abort"]
    configs = [{"mishap": mishap, "at": range(2 + i, 100, 2 + i)} for i, mishap in enumerate(mishaps)]
    with stepmill.make(
        FaultyEnv, num_envs=N, num_workers=3, env_config=configs, batch_size=batch_size, backend="process"
    ) as pool:
        pool.async_reset()
        sent = N
        count = abnormal = 0
        while sent < 40 * N:
            (_, _, _, truncated, info), error = outcome(pool.recv)
            ids = info["env_id"].tolist()
            assert len(set(ids)) == len(ids) == batch_size
            marked = info.get("abnormal", np.zeros(len(ids), bool))
            assert truncated.tolist() == marked.tolist()
            told = sorted(one.env_id for one in error.errors) if error else []
            assert told == sorted(np.array(ids)[marked].tolist())
            count += len(ids)
            abnormal += len(told)
            pool.send(np.zeros(len(ids)), info["env_id"])
            sent += len(ids)
        count += len(collect(pool))
        assert count == sent
        assert abnormal > N, "there was something to survive"
