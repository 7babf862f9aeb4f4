"""Pools on a real Ray cluster: the episodes of an ordinary pool, and one row for every action whatever is killed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import _native, errors
from stepmill.hosts.ray.actors import Actors
from support.envs.remote import DeadlyToBuild, Follower, Greedy, SlowToBuild, Teller, Unbuildable
from support.on_ray import actors_of, make_on_ray, told_by_actors, wait_until_dead
from support.probes import MODES, assert_same
from support.waiting import eventually

pytestmark = [
    pytest.mark.usefixtures("cluster", "server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


OF_A_FILE = str(Path(_native.__file__).parent / "include" / "envs" / "debug" / "template.h")
OTHERS = [(Teller, "next_step"), pytest.param(OF_A_FILE, "next_step", id="of a file")]


@pytest.mark.parametrize("num_actors", [1, 3])
@pytest.mark.parametrize(("task", "mode"), [("CartPole-v1", mode) for mode in MODES] + OTHERS)
def test_episodes_are_those_of_one_machine(task: Any, mode: str, num_actors: int) -> None:
    arguments = {"num_envs": 5, "seed": 3, "autoreset": mode}
    with make_on_ray(task, num_actors, **arguments) as pool, stepmill.make(task, **arguments) as plain:
        assert_same(pool.reset(), plain.reset())
        rng = np.random.default_rng(1)
        for _ in range(3 if mode == "disabled" else 30):
            action = rng.integers(0, 2, 5)
            assert_same(pool.step(action), plain.step(action))
        assert_same(pool.reset(seed=9), plain.reset(seed=9))


def test_each_action_has_one_row_in_batches_of_the_first() -> None:
    with make_on_ray(Teller, 3, num_envs=7, batch_size=3, seed=3) as pool:
        pool.async_reset()
        steps = np.zeros(7, int)
        while steps.min() <= 3:
            _, _, terminated, truncated, info = pool.recv()
            assert len(info["env_id"]) == 3
            steps[info["env_id"]] += 1
            assert not truncated.any()
            pool.send(np.ones(3, int), info["env_id"])
        assert terminated.dtype == bool


def test_a_failure_names_the_env_and_carries_the_batch() -> None:
    with make_on_ray(Teller, 2, num_envs=4, seed=3) as pool:
        pool.reset()
        with pytest.raises(errors.EnvError, match=r"env 3 failed in step \(episode 1, step 0\): .*it broke") as caught:
            pool.step(np.array([0, 0, 0, 2]))
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.batch[4]["abnormal"].tolist() == [False, False, False, True]


def test_envs_can_be_asked_wherever_they_are() -> None:
    with make_on_ray(Teller, 2, num_envs=4, seed=3) as pool:
        pool.reset()
        assert pool.get_attr("env_id") == (0, 1, 2, 3)
        pool.set_attr("level", [4, 5, 6, 7])
        assert pool.call("get_wrapper_attr", "level") == (4, 5, 6, 7)
        assert [int(frame[0, 0, 0]) for frame in pool.render()] == [0, 1, 2, 3]


def test_what_cannot_be_sent_changes_no_env() -> None:
    with make_on_ray(Teller, 2, num_envs=4) as pool:
        with pytest.raises(errors.InputError, match="expected a value that can be pickled"):
            pool.set_attr("level", [4, 5, 6, threading.Lock()])
        assert pool.get_attr("level") == (1, 1, 1, 1)


@pytest.mark.parametrize("task", ["CartPole-v1", Teller])
def test_a_killed_actor_costs_its_rows_and_comes_back(task: Any) -> None:
    import ray

    with make_on_ray(task, 2, num_envs=4, seed=3, on_error="restart", max_restarts=None) as pool:
        pool.reset()
        ray.kill(actors_of(pool)[1])
        wait_until_dead(actors_of(pool)[1])
        *_, terminated, truncated, info = pool.step(np.zeros(4, int))
        assert truncated.tolist() == [False, False, True, True]
        assert info["abnormal"].tolist() == [False, False, True, True]
        *_, truncated, info = pool.step(np.zeros(4, int))  # the next action resets
        assert not truncated.any()
        assert info["elapsed_step"].tolist() == [2, 2, 0, 0]
        assert terminated.shape == (4,)


def test_a_killed_actor_is_an_error_unless_told_otherwise() -> None:
    import ray

    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3) as pool:
        pool.reset()
        ray.kill(actors_of(pool)[0])
        wait_until_dead(actors_of(pool)[0])
        with pytest.raises(errors.WorkerDiedError, match=r"env 0 failed in step .*the Ray actor that ran it is gone"):
            pool.step(np.zeros(4, int))
        pool.step(np.zeros(4, int))


def test_a_constructor_that_fails_is_named() -> None:
    with pytest.raises(errors.EnvError, match=r"the constructor of env 2 .* failed: RuntimeError: no such map"):
        make_on_ray(Unbuildable, 2, num_envs=3)


def test_what_was_built_is_closed_if_another_actor_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = Actors._describe

    def say_so(self: Actors, group: int) -> Any:
        told = describe(self, group)
        (tmp_path / "go").touch()
        return told

    monkeypatch.setattr(Actors, "_describe", say_so)
    with pytest.raises(errors.EnvError, match="no such map"):
        make_on_ray(Follower, 2, num_envs=2, folder=str(tmp_path))
    assert (tmp_path / "closed").exists()


def test_a_constructor_that_ends_its_process_is_named() -> None:
    with pytest.raises(errors.WorkerDiedError, match="env 1 could not be built: the Ray actor that ran it is gone"):
        make_on_ray(DeadlyToBuild, 2, num_envs=2)  # in the process of the actor


def test_actors_are_spread_over_the_nodes() -> None:
    import ray

    # Actors of other tests are ending, and a node that is full is left out.
    assert eventually(lambda: ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"], 600)
    with make_on_ray(Teller, 3, num_envs=3, resources={"CPU": 0.1}) as pool:
        assert len({one["node_id"] for one in told_by_actors(pool)}) == 3


def test_a_call_that_does_not_wait_is_given_what_has_come() -> None:
    def has_come() -> bool:
        try:
            pool.recv(timeout=0)
        except errors.RecvTimeoutError:
            return False
        return True

    with make_on_ray(Teller, 2, num_envs=4, batch_size=2) as pool:
        pool.async_reset()
        assert eventually(has_come)
        assert eventually(has_come)
        with pytest.raises(errors.NothingInFlightError):
            pool.recv(timeout=0)


def test_workers_are_counted_over_all_actors() -> None:
    class Placed(Teller):
        def __init__(self, env_id: int, worker_id: int) -> None:
            super().__init__()
            self.ids = env_id, worker_id

    with make_on_ray(Placed, 2, num_envs=6, num_workers=2, resources={"CPU": 1}) as pool:
        assert pool.get_attr("ids") == ((0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (5, 3))


def test_what_the_cluster_does_not_have_is_named() -> None:
    with pytest.raises(
        errors.ResourceError, match=r"2 of 2 actors were not ready within start_timeout=2 s.*1 CPU, 1 tpu"
    ):
        make_on_ray("CartPole-v1", 2, num_envs=4, resources={"tpu": 1}, start_timeout=2)


@pytest.mark.parametrize("task", [SlowToBuild, Greedy()])
def test_envs_that_take_too_long_to_build_are_no_lack_of_resources(task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    describe_all = Actors.describe_all

    def when_all_have_a_place(self: Actors) -> Any:
        ray.get([actor.placed for actor in self._actors])
        return describe_all(self)

    monkeypatch.setattr(Actors, "describe_all", when_all_have_a_place)
    with pytest.raises(errors.EnvTimeoutError, match="start_timeout"):
        make_on_ray(task, 1, num_envs=2, start_timeout=3)


def test_an_async_pool_is_async_in_its_actors() -> None:
    # In one thread, the slow ones of different envs would hold back all.
    config = [{"env_id": env_id} for env_id in range(4)]
    with make_on_ray(Teller, 1, num_envs=4, batch_size=2, env_config=config) as pool:
        assert told_by_actors(pool)[0]["backend"] == "process"


@pytest.mark.parametrize(("batch_size", "most"), [(4, 2), (5, 1), (8, 1)])
def test_requests_under_way(batch_size: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = set()
    request = Actors.request

    def counted(self: Actors, group: int, *order: Any) -> None:
        request(self, group, *order)
        counts.add(self.under_way(group))

    monkeypatch.setattr(Actors, "request", counted)
    with make_on_ray("CartPole-v1", 1, num_envs=8, batch_size=batch_size) as pool:
        pool.async_reset()
        for _ in range(20):
            ids = pool.recv()[4]["env_id"]
            pool.send(np.zeros(len(ids), int), ids)
    assert max(counts) == most


def test_no_actor_is_left() -> None:
    pool = make_on_ray("CartPole-v1", 2, num_envs=4)
    handles = actors_of(pool)
    pool.close()
    for handle in handles:
        wait_until_dead(handle)
