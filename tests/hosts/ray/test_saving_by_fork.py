"""States by fork of envs in worker processes of actors: each is a process of its actor."""

from __future__ import annotations

import gc
import os
import socket
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.hosts.ray.env_actor import EnvActor
from stepmill.managers import RayEnvManager
from support.envs import ProbeTwin
from support.envs.sealed import Walker
from support.lanes import Lanes
from support.on_ray import actors_of, make_on_ray, told_by_actors, wait_until_dead
from support.probes import MODES, assert_same
from support.processes import descendants, signal_to
from support.waiting import ends, eventually

pytestmark = [
    pytest.mark.usefixtures("server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


def make(task: Any = Walker, num_envs: int = 4, **arguments: Any) -> Any:
    """Two actors, with a worker process for each of their envs: 0 and 1, 2 and 3."""
    return stepmill.make(
        task, num_envs=num_envs, backend=stepmill.Ray(num_actors=2), **{"num_workers": num_envs, **arguments}
    )


def clones_of(pool: Any) -> list[list[int]]:
    """The processes of states by fork, of each actor."""
    pool.get_attr("closed_in")  # as any call does, it tells the actors which ones are in use
    return [[one.pid for one in handle._actor._host.clones.alive()] for handle in actors_of(pool)]


def go(pool: Any, steps: int = 4) -> list[Any]:
    return [pool.step(np.ones(pool.num_envs, int))[:4] for _ in range(steps)]


# ---- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", [MODES[0], *(pytest.param(one, marks=pytest.mark.slow) for one in MODES[1:])])
def test_a_restored_env_goes_on_as_the_saved_one(autoreset: str, ray_here: Any) -> None:
    with make(autoreset=autoreset, seed=5) as pool:
        assert pool.state_kind == "fork"
        first = pool.reset(options={"kept": 3})
        assert_same(pool.restore(pool.save()), first)
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(3)
        states, at = pool.save(), list(lanes.at)
        expected = lanes.go(15)
        for order in ([0, 1, 2, 3], [1, 0, 3, 3], [1, 1, 2, 3]):
            pool.restore([states[i] for i in order])
            got = Lanes(pool, [at[i] for i in order]).go(15)
            for env_id, i in enumerate(order):
                assert_same(got[env_id], expected[i])
        assert pool._host._actors.restarts == 0


@pytest.mark.slow
def test_async_envs_in_flight_do_not_notice(ray_here: Any) -> None:
    with make(batch_size=1, seed=3) as pool, make(batch_size=1, seed=3) as twin:
        for one in (pool, twin):
            one.reset()
            one.send(np.zeros(1, int), [1])
        _, info = pool.restore(pool.save([0, 2, 3]), [0, 3, 2])
        assert info["env_id"].tolist() == [0, 3, 2]
        assert_same(pool.recv(), twin.recv())
        pool.fork(2, [3])


@pytest.mark.slow
def test_an_env_with_its_own_methods_is_saved_by_them(ray_here: Any) -> None:
    with make(ProbeTwin) as pool:
        assert pool.state_kind == "methods"
        pool.reset()
        states = [*pool.save([0, 1, 2]), pool.save([3], by="fork")[0]]
        assert [one.origin.kind for one in states] == ["methods"] * 3 + ["fork"]
        pool.step(np.zeros(4, np.float32))
        assert pool.restore(states)[1]["elapsed_step"].tolist() == [0] * 4


@pytest.mark.slow
def test_managers_save_and_restore(ray_here: Any) -> None:
    settings: dict[str, Any] = {"backend": stepmill.Ray(num_actors=2), "num_workers": 4, "episode_num": 99}
    with RayEnvManager(lambda cfg: Walker(), [{}] * 4, 4, **settings) as manager:
        assert manager.closed
        manager.seed(3)
        manager.launch()
        assert manager.state_kind == "fork"
        states = manager.save()

        def play() -> list[Any]:
            out = []
            for _ in range(6):
                shown = manager.ready_obs
                timesteps = manager.step(dict.fromkeys(shown, 1))
                while len(timesteps) < len(shown):
                    timesteps |= manager.step({})
                while len(manager.ready_obs) < 4:
                    pass
                out.append([shown, timesteps, manager.episode_count])
            return out

        expected = play()
        manager.restore(states)
        assert_same(play(), expected)
        with pytest.raises(errors.StateError, match="of another Ray actor"):
            manager.fork(0, [2])


# ---- where ---------------------------------------------------------------------------------------


def test_a_state_is_for_envs_of_its_actor(ray_here: Any) -> None:
    with make(seed=4) as pool, make(seed=4) as twin:
        pool.reset()
        twin.reset()
        states = pool.save()
        assert_same(go(pool), go(twin))
        expected = r"the state for env 2 cannot be restored: .* a process of another Ray actor"
        for given in ([states[0], states[1], states[1], states[3]], states[0]):
            with pytest.raises(errors.StateError, match=expected):
                pool.restore(given)
        with pytest.raises(errors.StateError, match=r"env 0 .* it was saved by fork in another pool"):
            twin.restore(states)
        with pytest.raises(errors.UnsupportedError, match="states of the kind 'fork' cannot leave"):
            pool.checkpoint(os.devnull)
        assert_same(go(pool), go(twin))


def test_where_there_is_no_process_per_env_it_says_what_to_do(ray_here: Any) -> None:
    with make(num_workers=1) as pool:
        pool.reset()
        assert "use num_workers=num_envs" in pool.state_kind
        with pytest.raises(errors.UnsupportedError, match=r"save: env 2: its class Walker .*use num_workers=num_envs"):
            pool.save([2])
        with pytest.raises(errors.UnsupportedError, match=r"one env per worker, got 2 envs and 1 .*num_workers=num_en"):
            pool.save(by="fork")
    with make(num_envs=2, num_workers=None) as pool:  # one per actor, which runs it itself
        pool.reset()
        assert "; or use num_workers=num_envs: a process" in pool.state_kind
        with pytest.raises(errors.UnsupportedError, match=r"save: env 1: its class Walker .*use num_workers=num_envs"):
            pool.save([1])
        with pytest.raises(errors.UnsupportedError, match=r"save: by='fork' .*use num_workers=num_envs"):
            pool.save(by="fork")


# ---- how long a clone lives ----------------------------------------------------------------------


def test_a_clone_ends_with_the_last_state_that_is_its(ray_here: Any) -> None:
    with make() as pool:
        pool.reset()
        states = pool.save()
        before = clones_of(pool)
        assert [len(one) for one in before] == [2, 2]
        last = states[1:][2]
        del states
        go(pool, 1)  # any call tells the actors
        assert eventually(lambda: len(descendants() & {*before[0], *before[1]}) == 1)
        assert [len(one) for one in clones_of(pool)] == [0, 1]
        pool.restore(last, [2])
        del last
        assert clones_of(pool) == [[], []]
        go(pool)


@pytest.mark.slow
def test_clones_end_with_the_pool(ray_here: Any) -> None:
    pool = make(num_envs=2)
    pool.reset()
    states = pool.save()
    pids = {pid for one in clones_of(pool) for pid in one}
    assert len(pids) == len(states) == 2
    pool.close()
    assert eventually(lambda: not descendants() & pids)


@pytest.mark.slow
def test_a_save_that_fails_or_is_interrupted_leaves_no_clone(ray_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with make() as pool:
        pool.reset()
        kept = pool.save([0])
        pool.apply(open_socket, env_ids=[3])
        with pytest.raises(errors.StateError, match=r"save: env 3: its process cannot be saved by fork, .* a socket"):
            pool.save()
        assert [len(one) for one in clones_of(pool)] == [1, 0]
        reply = pool._host._actors.reply

        def interrupted(*arguments: Any) -> Any:
            reply(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(pool._host._actors, "reply", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.save([0, 1])
        assert [len(one) for one in clones_of(pool)] == [1, 0]
        pool.restore(kept, [1])


def open_socket(env: Any) -> None:
    env.unwrapped.obstacle = socket.socketpair()


@pytest.mark.slow
def test_the_limits_are_those_of_each_actor(ray_here: Any) -> None:
    with make() as pool:
        assert (pool.clone_limit, pool.clone_memory) == (64, None)
        pool.reset()
        pool.clone_limit = 2
        states = [pool.save()]
        with pytest.raises(errors.ResourceError, match=r"2 states .*in a Ray actor.* and 1 more .*clone_limit=2"):
            pool.save([3])
        pool.clone_limit = 9
        pool.clone_memory = 1000
        with pytest.raises(errors.ResourceError, match=r"2 states .*in a Ray actor.* MiB .*clone_memory=1000"):
            pool.save([3])
        states.clear()
        states = [pool.save([3])]
        with pytest.raises(errors.ResourceError, match="save: 1 state saved by fork in a Ray actor took"):
            pool.save([3])
        assert [len(one) for one in clones_of(pool)] == [0, 1]


# ---- failures ------------------------------------------------------------------------------------


def test_a_clone_that_was_killed_changes_no_env(ray_here: Any) -> None:
    with make(seed=4) as pool, make(seed=4) as twin:
        pool.reset()
        twin.reset()
        states = pool.save()
        assert_same(go(pool), go(twin))
        (_, pid) = clones_of(pool)[1]
        signal_to(pid)
        assert ends(pid)
        for _ in range(2):
            with pytest.raises(errors.StateError, match=r"the state for env [23] cannot be restored: its process"):
                pool.restore(states)
        assert_same(go(pool), go(twin))
        pool.restore(states[:2], [0, 1])


@pytest.mark.slow
def test_an_interrupt_between_two_actors_leaves_the_old_states(ray_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(seed=4) as pool, make(seed=4) as twin:
        pool.reset()
        twin.reset()
        states = pool.save()
        assert_same(go(pool), go(twin))
        reply = pool._host._actors.reply
        replies: list[Any] = []

        def interrupted(*arguments: Any) -> Any:
            replies.append(reply(*arguments))
            if len(replies) == 2:  # both have taken their states
                raise KeyboardInterrupt
            return replies[-1]

        with monkeypatch.context() as patched:
            patched.setattr(pool._host._actors, "reply", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.restore(states)
        assert len(replies) == 4, "both were asked to go back"
        assert_same(go(pool), go(twin))
        pool.restore(states)
        twin.reset(seed=4)
        assert_same(go(pool), go(twin))


@pytest.mark.slow
def test_states_of_an_actor_that_was_replaced_are_refused(ray_here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with make(seed=4) as pool:
        pool.reset()
        states = pool.save()
        expected = go(pool)
        ask = EnvActor.ask

        def lost(self: Any, arguments: bytes, method: str) -> bytes:
            if method == "load_envs" and self._first:
                raise OSError("gone")
            return ask(self, arguments, method)

        with monkeypatch.context() as patched:
            patched.setattr(EnvActor, "ask", lost)
            with pytest.raises(errors.WorkerDiedError, match="env 2 failed in load_envs"):
                pool.restore(states)
        with pytest.raises(errors.StateError, match=r"env 2 .* has ended with the Ray actor that it was in"):
            pool.restore(states)
        pool.restore(states[:2], [0, 1])
        pool.reset([2, 3])
        for mine, its in zip(go(pool), expected, strict=True):
            assert_same([one[:2] for one in mine], [one[:2] for one in its])
        pool.restore(pool.save())


@pytest.mark.slow
def test_saves_restores_and_forks_leave_nothing(ray_here: Any) -> None:
    with make(num_envs=2, seed=1) as pool:
        pool.reset()
        pool.restore(pool.save())
        go(pool, 1)
        gc.collect()
        before, files = len(descendants()), len(os.listdir("/proc/self/fd"))
        for i in range(30):
            states = pool.save()
            if i % 3 == 0:
                pool.restore(states)
            go(pool, 1)
        del states
        go(pool, 1)
        assert eventually(lambda: len(descendants()) == before)
        assert len(os.listdir("/proc/self/fd")) == files


# ---- on a real cluster ---------------------------------------------------------------------------


def test_a_cluster_saves_by_fork(cluster: Any) -> None:
    """And the states of an actor that was killed end with it."""
    import ray

    with make_on_ray(Walker, 2, num_envs=4, seed=7, num_workers=4, resources={"CPU": 1}) as pool:
        pool.reset()
        assert pool.state_kind == "fork"
        states = pool.save()
        expected = go(pool)
        pool.restore([states[i] for i in (1, 1, 2, 3)])
        for mine, its in zip(go(pool), expected, strict=True):
            assert_same([one[[1, 1, 2, 3]] for one in its], list(mine))
        with pytest.raises(errors.StateError, match="of another Ray actor"):
            pool.fork(0, [3])
        assert [len(told["clones"]) for told in told_by_actors(pool)] == [2, 2]
        (_, handle) = actors_of(pool)
        pids = [one["pid"] for one in told_by_actors(pool)[1]["clones"]]
        ray.kill(handle)
        wait_until_dead(handle)
        assert all(map(ends, pids))
        with pytest.raises(errors.WorkerDiedError):
            pool.restore(states)
        with pytest.raises(errors.StateError, match="has ended with the Ray actor that it was in"):
            pool.restore(states)
        pool.restore(states[:2], [0, 1])
        pool.reset([2, 3])
        del states
        gc.collect()  # errors hold the frames that they came through
        assert eventually(lambda: [one["clones"] for one in told_by_actors(pool)] == [[], []])
