"""The order of an async pool's results, recorded and replayed: the same results again, bit for bit."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.backends import INLINE, THREAD, Actor, Backend
from support.envs import InfoEnv, ProbeTwin
from support.envs.adapted import TagEnv
from support.envs.faulty import FaultyEnv
from support.envs.many_spaces import WildEnv
from support.orders import BATCH, FAILED, LAST, TIMEOUT, AnyOrder, N, Program, ids_in, make, words_of
from support.probes import MODES, VIEWS, GatedPool, assert_same, seen
from support.ray_here import RayHere
from support.waiting import Gate, struck_inside

pytestmark = pytest.mark.usefixtures("deadline")

ELSEWHERE = (THREAD, Backend("process", 1), Backend("process", N), Backend("ray", 3))
TASKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "native": ("CartPole-v1", {"max_episode_steps": 9}),
    "infos": ("Probe-v0", {"info": True, "length": 4}),
    "players": ("Template-v0", {"max_num_players": 3, "length": 5}),
    "nested": (WildEnv, {}),
    "agents": (TagEnv, {}),
}
CASES = [(task, mode) for task in TASKS for mode in MODES[: 1 if task in ("players", "agents") else 2]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "order.bin"


@pytest.fixture
def ray_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the place of Ray."""
    monkeypatch.setattr("stepmill.hosts.ray.ray_host.connect", lambda settings: RayHere())


@pytest.mark.usefixtures("server", "ray_here")
@pytest.mark.parametrize("backend", ELSEWHERE, ids=str)
@pytest.mark.parametrize(("task", "mode"), CASES)
def test_any_possible_order_is_replayed_alike_everywhere(task: str, backend: Backend, mode: str, file: Path) -> None:
    source, arguments = TASKS[task]
    if backend == THREAD and not isinstance(source, str):
        backend = Backend("process", 3)

    def played(on: Backend) -> list[Any]:
        order = AnyOrder(file, make(on, source, autoreset=mode, **arguments), seed=5)
        with make(on, source, autoreset=mode, **arguments) as pool:
            pool.replay_order(file)
            return Program(pool, 1, order).play(60)

    assert_same(played(backend), played(INLINE))


@pytest.mark.usefixtures("server", "ray_here")
@pytest.mark.parametrize("backend", [INLINE, *ELSEWHERE], ids=str)
@pytest.mark.parametrize("task", TASKS)
def test_a_recorded_run_is_repeated(task: str, backend: Backend, file: Path) -> None:
    source, arguments = TASKS[task]
    if backend == THREAD and not isinstance(source, str):
        backend = Backend("process", 3)
    with make(backend, source, **arguments) as pool:
        pool.record_order(file)
        recorded = Program(pool, 2).play(60)
    for other in (backend, INLINE):
        with make(other, source, **arguments) as pool:
            pool.replay_order(file)
            assert_same(Program(pool, 2).play(60), recorded)


# ---- envs that are ready in another order ----------------------------------------------------------


@pytest.mark.usefixtures("server")
def test_results_that_come_too_early_wait_for_their_turn(gate: Gate, file: Path) -> None:
    def build(env_id: int) -> FaultyEnv:
        return FaultyEnv("gate", at=range(1, 1000), folder=gate.folder, env_id=env_id)

    def start() -> Any:
        return make(Backend("process", N), build)

    rng = np.random.default_rng(0)
    with start() as pool:
        pool.record_order(file)
        pool.reset()
        pool.send(np.zeros(N, np.float32), range(N))
        recorded = []
        for _ in range(20):
            first = rng.permutation(pool.in_flight)[:BATCH]
            for env_id in first:
                gate.open(env_id)
            recorded.append(pool.recv())
            ids = recorded[-1][-1]["env_id"]
            assert sorted(ids) == sorted(first)
            pool.send(recorded[-1][0][:, 1].astype(np.float32) / 100, ids)
        for env_id in pool.in_flight:
            gate.open(env_id)
        recorded += pool.drain()

    with start() as pool:
        pool.replay_order(file)
        pool.reset()
        pool.send(np.zeros(N, np.float32), range(N))
        opened: set[int] = set()
        for at, expected in enumerate(recorded):
            wanted = expected[-1]["env_id"]
            others = [one for one in pool.in_flight if one not in wanted and one not in opened]
            for env_id in others:
                gate.open(env_id)
            pool.call("visit", env_ids=others)  # waits for their steps: they are ready before those that are wanted
            for env_id in set(wanted) - opened:
                gate.open(env_id)
            opened = opened.union(others).difference(wanted)
            assert_same(pool.recv(), expected)
            if at < 20:
                pool.send(expected[0][:, 1].astype(np.float32) / 100, wanted)


def test_an_env_that_waits_for_the_caller_holds_up_no_other_one(file: Path) -> None:
    """A batch may fill up with results that come too early: the one that is wanted then waits for no other."""
    pipes = [os.pipe() for _ in range(4)]
    configs = [{"gate_fd": read} for read, _ in pipes]

    def start() -> Any:
        return stepmill.make("Probe-v0", num_envs=4, batch_size=2, num_threads=4, env_config=configs)

    def open_gate(env_id: int) -> None:
        os.write(pipes[env_id][1], b"x")

    with start() as pool:
        pool.record_order(file)
        pool.reset()
        pool.send(np.zeros(4, np.float32), range(4))
        open_gate(1)
        open_gate(2)
        assert sorted(pool.recv()[-1]["env_id"]) == [1, 2]
        open_gate(0)
        open_gate(3)
        pool.recv()
    with start() as pool:
        pool.replay_order(file)
        pool.reset()
        pool.send(np.zeros(4, np.float32), range(4))
        open_gate(3)
        open_gate(1)
        open_gate(2)
        assert sorted(pool.recv()[-1]["env_id"]) == [1, 2]  # though env 0 waits at its gate
        open_gate(0)
        assert sorted(pool.recv()[-1]["env_id"]) == [0, 3]
    for ends in pipes:
        os.close(ends[0])
        os.close(ends[1])


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_and_every_way_to_receive(view: str, file: Path) -> None:
    def played(pool: Any) -> list[Any]:
        pool.async_reset()
        results = [pool.recv()]
        results.append(pool.step(np.ones(BATCH, int)))
        pool.send(np.ones(BATCH, int))
        holder = InfoEnv()
        pool.recv_into(holder, "batch")
        return [*results, holder.batch, *pool.drain()]

    def start() -> Any:
        return stepmill.make("CartPole-v1", view, num_envs=N, batch_size=BATCH, seed=3)

    with start() as pool:
        pool.record_order(file)
        recorded = played(pool)
    ids = [seen(view, result).ids for result in recorded]
    assert [word & ~LAST for word in words_of(file)] == [one for batch in ids for one in batch]
    with start() as pool:
        pool.replay_order(file)
        assert_same(played(pool), recorded)


def test_play_and_rollout_are_repeated(file: Path) -> None:
    def lean(observations: Any, env_ids: Any, generators: Any) -> Any:
        return np.array([int(generator.random() < 0.5) for generator in generators])

    def played(pool: Any) -> list[Any]:
        batches = [batch._replace(seconds=0.0) for batch in pool.play(lean, episodes=range(20))]
        return [batches, pool.rollout(lean, 20, observation=pool.reset()[0]).rewards]

    with make(Backend("process", 3)) as pool:
        pool.record_order(file)
        recorded = played(pool)
    with make(INLINE) as pool:
        pool.replay_order(file)
        assert_same(played(pool), recorded)


def test_states_are_saved_and_restored_on_the_way(file: Path) -> None:
    def played(pool: Any) -> list[Any]:
        pool.async_reset()
        results = [pool.recv()]
        ids = results[0][-1]["env_id"]
        states = pool.save(ids)  # others are in flight
        pool.send(np.ones(BATCH, int), ids)
        results += pool.drain()
        return [*results, pool.restore(states, ids)]

    with make(THREAD) as pool:
        pool.record_order(file)
        recorded = played(pool)
    with make(INLINE) as pool:
        pool.replay_order(file)
        assert_same(played(pool), recorded)


@pytest.mark.usefixtures("server")
def test_a_resumed_pool_records_and_replays_what_waited_and_what_follows(file: Path) -> None:
    run = file.with_name("run.pool")
    with make(Backend("process", 3), WildEnv) as pool:
        pool.record_order(file)
        pool.async_reset()
        results = [pool.recv(), pool.recv()]
        pool.send(Actor(pool, 1)(BATCH), results[0][-1]["env_id"])
        pool.checkpoint(run)  # with four results that nobody has received
        results += pool.drain()
    assert [word & ~LAST for word in words_of(file)] == [one for batch in ids_in(results) for one in batch]
    with stepmill.resume(run) as pool:
        pool.record_order(file)
        resumed = Program(pool, 2).go_on(40)
    assert_same(resumed[0], results[2])
    with stepmill.resume(run, backend="inline") as pool:
        pool.replay_order(file)
        with pytest.raises(errors.UsageError, match=r"checkpoint: .* \(replay_order\)"):
            pool.checkpoint(run)
        assert_same(Program(pool, 2).go_on(40), resumed)


# ---- failures --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_failed_rows_are_repeated_with_their_errors(on_error: str, file: Path) -> None:
    def build(env_id: int) -> ProbeTwin:
        return ProbeTwin(fail_in="step", fail_at=2 + env_id, fail_count=1, info=True)

    def played(pool: Any, turns: int | None = None) -> list[Any]:
        """As many turns, or until every env has failed: an env may be kept waiting."""
        pool.async_reset()
        results: list[Any] = []
        failures = 0
        while failures < N if turns is None else len(results) < turns:
            try:
                results.append(pool.recv())
            except errors.EnvError as error:
                results.append([str(error), [str(one) for one in error.errors], error.batch])
            batch = results[-1][2] if len(results[-1]) == 3 else results[-1]
            failures += int(np.sum(batch[-1].get("abnormal", 0)))
            pool.send(np.zeros(BATCH, np.float32), batch[-1]["env_id"])
        return results

    arguments = {"on_error": on_error, "max_restarts": 5}
    with make(Backend("process", 3), build, **arguments) as pool:
        pool.record_order(file)
        recorded = played(pool)
    assert sum(bool(word & FAILED) for word in words_of(file)) == N
    for backend in (Backend("process", 2), INLINE):
        with make(backend, build, **arguments) as pool:
            pool.replay_order(file)
            assert_same(played(pool, len(recorded)), recorded)


# ---- timeouts, signals, ends -----------------------------------------------------------------------


def test_a_timeout_runs_out_where_it_did_and_nowhere_else(file: Path) -> None:
    read, write = os.pipe()

    def start() -> Any:
        return stepmill.make("Probe-v0", num_envs=4, batch_size=2, num_threads=2, gate_fd=read)

    with start() as pool:
        pool.record_order(file)
        pool.reset()
        pool.send(np.zeros(4, np.float32), range(4))
        with pytest.raises(errors.RecvTimeoutError) as error:
            pool.recv(timeout=0)
        message = str(error.value)
        os.write(write, b"xxxx")
        results = [pool.recv(), pool.recv()]
    assert words_of(file)[0] == TIMEOUT
    with start() as pool:
        pool.replay_order(file)
        pool.reset()
        os.write(write, b"xxxx")  # nothing has to wait this time
        pool.send(np.zeros(4, np.float32), range(4))
        with pytest.raises(errors.StateError, match="was over there, and recv"):
            pool.recv()
        with pytest.raises(errors.RecvTimeoutError) as error:
            pool.recv(timeout=0)
        assert str(error.value) == message
        assert_same([pool.recv(timeout=0), pool.recv(timeout=1e-9)], results)
    os.close(read)
    os.close(write)


def test_what_a_signal_handler_interrupts_is_neither_lost_nor_written_twice(file: Path) -> None:
    with GatedPool(4) as gated:
        config = {key: gated.pool.config[key] for key in ("gate_fd", "work", "length")}
        arguments = {"num_envs": 4, "batch_size": 2, "num_threads": 2, **config}
        for call in ("record_order", "replay_order"):
            with stepmill.make("Probe-v0", **arguments) as pool:
                getattr(pool, call)(file)
                pool.reset()
                pool.send(np.zeros(4, np.float32), range(4))
                with struck_inside(pool):
                    pool.recv()
                gated.open(4)
                ids = ids_in(pool.drain())
            assert [word & ~LAST for word in words_of(file)] == [one for batch in ids for one in batch]


def test_reset_drops_what_waits_and_envs_of_other_orders_go_on(file: Path) -> None:
    def played(pool: Any) -> list[Any]:
        pool.async_reset()
        results = [pool.recv()]
        results.append(pool.reset())  # four rows of the reset before are dropped
        pool.send(np.ones(N, int), range(N))
        return [*results, *pool.drain()]

    with make(Backend("process", 3)) as pool:
        pool.record_order(file)
        recorded = played(pool)
    with make(THREAD) as pool:
        pool.replay_order(file)
        assert_same(played(pool), recorded)
