"""What dies, hangs or is missing on a cluster: every action has one row, and the caller never waits without an end."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.hosts.ray.actors import Actors
from support.envs.remote import Sleeper, Teller
from support.on_ray import actors_of, make_on_ray, told_by_actors, wait_until_dead
from support.probes import assert_same
from support.ray_cluster import NODE
from support.waiting import ends, eventually

pytestmark = [
    pytest.mark.usefixtures("cluster", "server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
PATIENT = {"on_error": "restart", "max_restarts": None}


@contextlib.contextmanager
def more_nodes(cluster: Any, count: int, **resources: float) -> Iterator[list[Any]]:
    """Nodes of their own kind, for as long as the block."""
    nodes = [cluster.add_node(**NODE, resources=resources) for _ in range(count)]
    try:
        yield nodes
    finally:
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)


def pids_of(pool: Any) -> list[int]:
    return [one["pid"] for one in told_by_actors(pool)]


def kill_raylet(node: Any) -> None:
    os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)


# ---- actors and nodes ----------------------------------------------------------------------------


def test_an_actor_that_gives_no_sign_of_life_is_given_up() -> None:
    with make_on_ray("CartPole-v1", 2, num_envs=4, node_timeout=5, **PATIENT) as pool:
        pool.reset()
        stopped, _ = pids_of(pool)
        os.kill(stopped, signal.SIGSTOP)
        *_, truncated, info = pool.step(np.zeros(4, int))
        assert truncated.tolist() == [True, True, False, False]
        assert info["abnormal"].tolist() == [True, True, False, False]
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)  # what it answers now is nobody's
        *_, truncated, info = pool.step(np.zeros(4, int))
        assert not truncated.any()
        assert info["elapsed_step"].tolist() == [0, 0, 2, 2]
        assert pool.stats()["restarts"] == 1


def test_silence_is_named() -> None:
    with make_on_ray(Teller, 1, num_envs=1, node_timeout=5) as pool:
        pool.reset()
        os.kill(pids_of(pool)[0], signal.SIGSTOP)
        with pytest.raises(errors.EnvTimeoutError, match=r"gave no sign of life for node_timeout=5 s"):
            pool.step([0])


def test_slow_envs_give_signs_of_life() -> None:
    """The pings have a thread of their own: an env may take many times the timeout."""
    with make_on_ray(Sleeper, 1, num_envs=1, node_timeout=4) as pool:
        pool.reset()
        *_, truncated, info = pool.step([12.0])
        assert not truncated.any()
        assert "abnormal" not in info


def test_a_question_to_a_silent_actor_ends() -> None:
    with make_on_ray(Teller, 1, num_envs=1, node_timeout=5) as pool:
        pool.reset()
        os.kill(pids_of(pool)[0], signal.SIGSTOP)
        with pytest.raises(errors.EnvTimeoutError, match=r"env 0 failed in get_attr: .*no sign of life"):
            pool.get_attr("level")


def test_a_question_to_a_dead_actor_starts_another_one() -> None:
    import ray

    with make_on_ray(Teller, 1, num_envs=2, **PATIENT) as pool:
        pool.reset()
        ray.kill(actors_of(pool)[0])
        with pytest.raises(errors.WorkerDiedError, match="env 1 failed in get_attr: the Ray actor that ran it is gone"):
            assert eventually(lambda: pool.get_attr("level", [1]) == (), 600)  # it takes a moment
        assert pool.get_attr("level") == (1, 1)
        *_, truncated, info = pool.step(np.zeros(2, int))  # tells that the episodes are lost
        assert truncated.all()
        assert info["abnormal"].all()


@pytest.mark.parametrize("task", ["CartPole-v1", Teller])
def test_envs_of_a_dead_node_go_on_elsewhere(cluster: Any, task: Any) -> None:
    with more_nodes(cluster, 2, meadow=1) as nodes:
        where = {"resources": {"CPU": 1, "meadow": 1}}
        with make_on_ray(task, 2, num_envs=4, **where, **PATIENT) as pool:
            pool.reset()
            kept, doomed = told_by_actors(pool)
            with more_nodes(cluster, 1, meadow=1):
                kill_raylet(next(node for node in nodes if node.node_id == doomed["node_id"]))
                *_, truncated, info = until_one_fails(pool)
                assert truncated.tolist() == info["abnormal"].tolist() == [False, False, True, True]
                *_, truncated, info = pool.step(np.zeros(4, int))
                assert not truncated.any()
                assert info["elapsed_step"][2:].tolist() == [0, 0]
                assert told_by_actors(pool)[0]["pid"] == kept["pid"]
                assert told_by_actors(pool)[1]["node_id"] not in (kept["node_id"], doomed["node_id"])


def until_one_fails(pool: Any) -> Any:
    """Steps: a process outlives its raylet by a moment."""
    while True:
        result = pool.step(np.zeros(pool.num_envs, int))
        if "abnormal" in result[4]:
            return result


@contextlib.contextmanager
def last_node_lost(cluster: Any, **arguments: Any) -> Iterator[Any]:
    """A pool whose envs can be nowhere, and which finds that out soon."""
    with (
        more_nodes(cluster, 1, meadow=1) as nodes,
        make_on_ray("CartPole-v1", 1, num_envs=2, resources={"CPU": 1, "meadow": 1}, **arguments) as pool,
    ):
        pool.reset()
        actors = pool._engine.host._actors
        actors._settings = replace(actors._settings, start_timeout=2.0)
        kill_raylet(nodes[0])
        yield pool


NO_PLACE = r"no actor could be started .*start_timeout=2 s\. Each needs 1 CPU, 1 meadow"


def test_what_is_missing_for_another_place_is_named(cluster: Any) -> None:
    with last_node_lost(cluster) as pool:
        with pytest.raises(errors.WorkerDiedError, match="the Ray actor that ran it is gone"):
            until_one_fails(pool)
        with pytest.raises(errors.WorkerDiedError, match=NO_PLACE):
            pool.step(np.zeros(2, int))
        with pytest.raises(errors.WorkerDiedError, match=r"env 1 failed in random_states: no actor could be started"):
            pool._engine.use(pool._engine.host.random_states, [1])


def test_on_error_restart_raises_too_if_there_is_no_place(cluster: Any) -> None:
    """Otherwise each step of a long training would wait for as long."""
    with last_node_lost(cluster, **PATIENT) as pool:
        assert until_one_fails(pool)[4]["abnormal"].all()
        with pytest.raises(errors.WorkerDiedError, match=NO_PLACE) as caught:
            pool.step(np.zeros(2, int))
        observation, *_, truncated, info = caught.value.batch
        assert truncated.all()
        assert info["abnormal"].all()
        with pytest.raises(errors.WorkerDiedError, match=NO_PLACE):
            pool.rollout(lambda _, env_ids, rngs: np.zeros(len(env_ids), int), 1000, observation=observation)


def test_every_action_has_one_row_while_actors_are_killed() -> None:
    """They are killed at any moment of a request, and come back."""
    import ray

    with make_on_ray(Teller, 3, num_envs=12, batch_size=4, start_timeout=120, **PATIENT) as pool:
        kills = 0
        actors = pool._engine.host._actors

        def killer() -> None:
            nonlocal kills
            rng = np.random.default_rng(0)
            for _ in range(4):
                group = int(rng.integers(3))
                assert eventually(lambda group=group: actors.is_ready(group), 600)  # one that starts has no actions
                time.sleep(rng.uniform(0, 0.1))
                ray.kill(actors_of(pool)[group])
                kills += 1

        thread = threading.Thread(target=killer, daemon=True)
        thread.start()
        pool.async_reset()
        sent, received = Counter(range(12)), Counter(dict.fromkeys(range(12), 0))
        while kills < 4 or min(received.values()) < 3:
            *_, info = pool.recv()
            ids = info["env_id"].tolist()
            assert len(ids) == 4
            received.update(ids)
            assert all(received[one] <= sent[one] for one in ids)
            pool.send(np.zeros(4, int), info["env_id"])
            sent.update(ids)
        thread.join()
        while pool.stats()["in_flight"]:
            received.update(pool.recv()[4]["env_id"].tolist())
        assert received == sent


@pytest.mark.parametrize("change", [lambda answer: answer[:-1], lambda _: b"", lambda _: ("rows",)])
def test_an_answer_that_cannot_be_read_costs_the_actor(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Actors._read
    broken = []

    def break_one(actors: Actors, *arguments: Any) -> Any:
        answer = read(actors, *arguments)
        if broken or not isinstance(answer, bytes):
            return answer
        broken.append(answer)
        return change(answer)

    with make_on_ray(Teller, 1, num_envs=2, **PATIENT) as pool:
        pool.reset()
        monkeypatch.setattr(Actors, "_read", break_one)
        *_, info = pool.step(np.zeros(2, int))
        assert info["abnormal"].all()
        assert pool.step(np.zeros(2, int))[4]["elapsed_step"].tolist() == [0, 0]


@pytest.mark.parametrize("task", ["HalfCheetah-v5", "gymnasium:HalfCheetah-v5"])
@pytest.mark.filterwarnings("ignore:.*is out of date")
def test_models_are_set_again_in_another_actor(task: str) -> None:
    pytest.importorskip("mujoco")
    import ray

    with make_on_ray(task, 2, num_envs=3, resources={"CPU": 1}, **PATIENT) as pool:
        pool.reset()
        pool.set_model([1, 2], {"opt.density": np.array([3.0, 4.0])})
        pool.set_model([2], {"opt.timestep": 0.004})
        for actor in actors_of(pool):
            ray.kill(actor)
            wait_until_dead(actor)
        assert pool.step(np.zeros((3, 6), np.float32))[4]["abnormal"].all()
        found = pool.get_model(None, ["opt.density", "opt.timestep"])
        assert found["opt.density"].tolist() == [0.0, 3.0, 4.0]
        assert found["opt.timestep"].tolist() == [0.01, 0.01, 0.004]


@pytest.mark.parametrize("method", ["request", "_read"])
def test_nothing_waits_for_what_is_lost_on_its_way(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(Actors, method)
    raised = []

    def full(actors: Actors, *arguments: Any) -> Any:
        result = None if method == "request" and not raised else original(actors, *arguments)
        if not raised and (method == "request" or isinstance(result, bytes)):
            raised.append(method)
            raise MemoryError("the object store is full")
        return result

    with make_on_ray(Teller, 1, num_envs=2, **PATIENT) as pool:
        pool.reset()
        monkeypatch.setattr(Actors, method, full)
        with pytest.raises(MemoryError, match="is full"):
            pool.step(np.zeros(2, int))
        assert pool.recv()[4]["abnormal"].all()
        assert pool.step(np.zeros(2, int))[4]["elapsed_step"].tolist() == [0, 0]


@pytest.mark.parametrize(("num_envs", "backend"), [(1, "inline"), (2, "process")])
def test_options_that_a_node_cannot_read_cost_the_row_of_their_env(
    num_envs: int, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_with_me.py").write_text("class Thing: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "only_with_me", raising=False)  # of another folder
    thing = __import__("only_with_me").Thing()
    workers = {"num_workers": 1, "resources": {"CPU": 1}} if backend == "process" else {}
    with make_on_ray(Teller, 1, num_envs=num_envs, **workers, **PATIENT) as pool:
        assert told_by_actors(pool)[0]["backend"] == backend
        for _ in range(2):
            *_, info = pool.reset(options=[{"thing": thing}, {"a": 1}][:num_envs])
            assert info["abnormal"].tolist() == [True, False][:num_envs]
        assert pool.stats()["restarts"] == 0


# ---- inside an actor -----------------------------------------------------------------------------


def test_deadlines_are_kept_inside_the_actor() -> None:
    with make_on_ray(Sleeper, 2, num_envs=2, step_timeout=5, num_workers=1) as pool:
        pool.reset()
        with pytest.raises(errors.EnvTimeoutError, match=r"env 1 failed in step .*step_timeout=5") as caught:
            pool.step([0.0, 600.0])
        assert caught.value.batch[4]["abnormal"].tolist() == [False, True]
        *_, info = pool.step([0.0, 0.0])
        assert info["elapsed_step"].tolist() == [2, 0]


@pytest.mark.parametrize("settings", [{"step_timeout": 500}, {"num_workers": 1}])
def test_native_envs_run_in_processes_if_they_are_to(settings: dict[str, Any]) -> None:
    arguments = {"num_envs": 4, "seed": 3, **PATIENT}
    with (
        make_on_ray("CartPole-v1", 2, num_threads=None, resources={"CPU": 1}, **settings, **arguments) as pool,
        stepmill.make("CartPole-v1", **arguments) as plain,
    ):
        assert_same(pool.reset(), plain.reset())
        for step in range(20):
            action = (np.arange(4) + step) % 2
            result = pool.step(action)
            assert_same(result, plain.step(action))
        assert [one["backend"] for one in told_by_actors(pool)] == ["process", "process"]
        (worker,) = told_by_actors(pool)[1]["workers"]
        os.kill(worker["pid"], signal.SIGKILL)
        while "abnormal" not in (info := pool.step(action)[4]):
            pass
        assert info["abnormal"].tolist() == [False, False, True, True]
        assert pool.stats()["restarts"] == 0  # of actors


# With two workers, half of the envs are in the one that is held up.
@pytest.mark.parametrize(("num_workers", "others"), [(8, range(1, 8)), (2, range(4, 8))])
def test_a_slow_env_holds_back_no_other_worker(num_workers: int, others: range) -> None:
    with make_on_ray(Sleeper, 1, num_envs=8, batch_size=2, num_workers=num_workers, resources={"CPU": 1}) as pool:
        pool.async_reset()
        ids = np.array([], int)
        while 0 not in ids:
            ids = pool.recv()[4]["env_id"]
            pool.send(np.where(ids == 0, 600.0, 0.0), ids)
        seen = Counter[int]()
        while min(seen[env_id] for env_id in others) <= 3:
            ids = pool.recv()[4]["env_id"]
            seen.update(ids.tolist())
            pool.send(np.zeros(2), ids)
        assert 0 not in seen


def play_with_slow_second_half(pool: Any, seconds: float) -> Iterator[Any]:
    """Batches of a pool of 8 sleepers whose last four take so long for a step."""
    pool.async_reset()
    ids = np.concatenate([pool.recv()[4]["env_id"] for _ in range(2)])
    while True:
        pool.send(np.where(ids >= 4, seconds, 0.0), ids)
        ids = pool.recv()[4]["env_id"]
        yield ids


SLEEPERS = {"num_envs": 8, "batch_size": 4, "num_workers": 1, "resources": {"CPU": 1}}


def test_a_slow_actor_holds_back_no_other() -> None:
    with make_on_ray(Sleeper, 2, **SLEEPERS) as pool:
        # All that is missing of a batch has to come from the same actor, each time.
        for ids in itertools.islice(play_with_slow_second_half(pool, 600.0), 10):
            assert sorted(ids) == [0, 1, 2, 3]


def test_a_busy_caller_does_not_forget_a_slow_actor() -> None:
    with make_on_ray(Sleeper, 2, **SLEEPERS) as pool:
        seen = Counter[int]()
        for ids in play_with_slow_second_half(pool, 0.3):
            seen.update(ids.tolist())
            if min(seen[env_id] for env_id in range(8)) >= 2:
                break


def test_orders_do_not_wait_behind_slow_envs() -> None:
    with make_on_ray(Sleeper, 1, num_envs=4, batch_size=2, num_workers=2, resources={"CPU": 1}) as pool:
        pool.async_reset()
        assert sorted(np.concatenate([pool.recv()[4]["env_id"] for _ in range(2)])) == [0, 1, 2, 3]
        pool.send(np.full(2, 600.0), np.array([0, 1]))
        pool.send(np.zeros(2), np.array([2, 3]))
        assert sorted(pool.recv()[4]["env_id"]) == [2, 3]


@pytest.mark.parametrize("where", ["constructor", "step", "call", "policy"])
def test_an_interrupt_that_an_env_raises_is_not_taken_for_ctrl_c(where: str) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    class Interrupting(Teller):
        def __init__(self) -> None:
            super().__init__()
            if where == "constructor":
                raise KeyboardInterrupt

        def step(self, action: int) -> Any:
            raise KeyboardInterrupt

        def interrupt(self) -> None:
            raise KeyboardInterrupt

    def use() -> None:
        with make_on_ray(Interrupting, 1, num_envs=2) as pool:
            observation, _ = pool.reset()
            if where == "step":
                pool.step(np.zeros(2, int))
            elif where == "call":
                pool.call("interrupt")
            else:
                pool.rollout(interrupt, 2, observation=observation)

    with pytest.raises(errors.EnvError, match="KeyboardInterrupt"):
        use()


# ---- the caller ----------------------------------------------------------------------------------

DRIVER = """
import sys
import ray, stepmill
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
pool = stepmill.make("CartPole-v1", num_envs=4, backend=stepmill.Ray(num_actors=2), num_threads=1)
pool.reset()
while None in (told := pool.stats()["actors"]):  # a machine under load
    pass
print(*[one["pid"] for one in told], flush=True)
sys.stdin.read()
"""


def test_a_caller_that_dies_leaves_no_actors(cluster: Any) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, cluster.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        pids = [int(one) for one in driver.stdout.readline().split()]
        assert len(pids) == 2
        driver.kill()
    assert all(ends(pid, 500) for pid in pids)
