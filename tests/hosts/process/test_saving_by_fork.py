"""States by fork: a copy of an env's worker process sleeps, and the env goes on in a copy of that, bit for bit."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.envs import ProbeTwin
from support.envs.contract import Pair, Walk
from support.envs.many_spaces import WildEnv
from support.envs.sealed import Walker
from support.injection import Alarms
from support.lanes import Lanes
from support.probes import MODES, assert_same
from support.processes import (
    belongings,
    child,
    descendants,
    kill_worker,
    left_since,
    parent_of,
    signal_to,
    went_well,
    worker_pids,
)
from support.subprocesses import run_well
from support.waiting import eventually


def make(task: Any = Walker, num_envs: int = 3, **arguments: Any) -> Any:
    return stepmill.make(task, num_envs=num_envs, backend="process", num_workers=num_envs, **arguments)


def clones_of(pool: Any) -> list[int]:
    return [one["pid"] for one in pool.stats()["clones"]]


def go(pool: Any, steps: int = 4) -> list[Any]:
    return [pool.step(np.ones(pool.num_envs, int))[:4] for _ in range(steps)]


# ---- going on ------------------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", MODES)
def test_a_restored_env_goes_on_as_the_saved_one(autoreset: str) -> None:
    rng = np.random.default_rng(len(autoreset))
    with make(autoreset=autoreset, seed=5) as pool:
        assert pool.state_kind == "fork"
        first = pool.reset(options={"kept": 3})
        assert_same(pool.restore(pool.save()), first)
        lanes = Lanes(pool, [(i, 0) for i in range(3)])
        for _ in range(2):
            last = lanes.go(int(rng.integers(1, 9)))
            states, at = pool.save(), list(lanes.at)
            expected = lanes.go(20)
            for order in (np.arange(3), rng.permutation(3), np.full(3, 1)):
                shown, info = pool.restore([states[i] for i in order])
                assert info["env_id"].tolist() == [0, 1, 2]
                assert_same(shown, np.stack([last[i][-1][0] for i in order]))
                got = Lanes(pool, [at[i] for i in order]).go(20)
                for env_id, i in enumerate(order):
                    assert_same(got[env_id], expected[i])
        assert pool.stats()["restarts"] == 0


@pytest.mark.parametrize("task", [Walk, WildEnv, Pair])
def test_every_kind_of_env_goes_on(task: Any) -> None:
    """Objects, several players, and envs that know their number."""
    with make(task, 2, seed=3) as pool:
        pool.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        if task is not Pair:  # the rows of its players are not those of its envs
            lanes.go(3)
        states = pool.save(by="fork")
        assert states.origins[0].kind == "fork"
        actions = [pool.action_space.sample() for _ in range(12)]
        expected = [pool.step(action) for action in actions]
        pool.restore(states)
        assert_same([pool.step(action) for action in actions], expected)
        if task is Walk:
            pool.restore(states[0], [1])
            assert pool.get_attr("env_id") == (0, 1)


def test_one_state_is_for_any_env_any_number_of_times() -> None:
    with make(seed=8) as pool:
        pool.reset()
        go(pool, 2)
        state = pool.save([1])[0]
        expected = go(pool, 3)
        for _ in range(3):
            pool.restore(state, [0, 1, 2])
            for mine, its in zip(go(pool, 3), expected, strict=True):
                for part, other in zip(mine, its, strict=True):
                    assert_same(part, np.stack([other[1]] * 3))
        pool.fork(1, [0, 2])
        assert len({tuple(row) for row in go(pool, 1)[0][0]}) == 1


def test_async_envs_in_flight_do_not_notice() -> None:
    with make(batch_size=1, seed=3) as pool, make(batch_size=1, seed=3) as twin:
        for one in (pool, twin):
            one.reset()
            one.send(np.zeros(1, int), [2])
        _, info = pool.restore(pool.save([0, 1]), [1, 0])
        assert info["env_id"].tolist() == [1, 0]
        with pytest.raises(errors.InFlightError, match="env 2 is in flight"):
            pool.save([1, 2])
        assert_same(pool.recv(), twin.recv())


def test_the_old_worker_ends_and_its_env_is_not_closed(tmp_path: Path) -> None:
    with make(num_envs=2) as pool:
        pool.reset()
        pool.set_attr("closed_in", str(tmp_path))
        before = worker_pids(pool)
        pool.restore(pool.save())
        after = worker_pids(pool)
        assert not set(before) & set(after)
        assert eventually(lambda: not set(before) & descendants())
        assert not list(tmp_path.iterdir())
        assert {parent_of(pid) for pid in after} == {parent_of(after[0])}
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == sorted(after)


def test_an_env_does_not_see_its_clone() -> None:
    def wait(env: Any) -> str:
        try:
            return f"it waits for {os.waitpid(-1, os.WNOHANG)}"
        except ChildProcessError:
            return "no child"

    with make(num_envs=1) as pool:
        pool.reset()
        states = pool.save()
        assert pool.apply(wait) == ("no child",)
        pool.restore(states)
        assert pool.apply(wait) == ("no child",)
        pool.restore(pool.save())


# ---- which envs ----------------------------------------------------------------------------------


def test_an_env_with_its_own_methods_is_saved_by_them() -> None:
    with make(ProbeTwin, 2) as pool:
        assert pool.state_kind == "methods"
        pool.reset()
        states = [pool.save([0])[0], pool.save([1], by="fork")[0]]
        assert [one.origin.kind for one in states] == ["methods", "fork"]
        pool.step(np.zeros(2, np.float32))
        assert pool.restore(states)[1]["elapsed_step"].tolist() == [0, 0]


def test_where_there_is_no_process_per_env_it_says_what_to_do() -> None:
    with stepmill.make(Walker, num_envs=2, backend="process", num_workers=1) as pool:
        pool.reset()
        assert "use num_workers=num_envs" in pool.state_kind
        with pytest.raises(errors.UnsupportedError, match=r"save: env 0: its class Walker .*use num_workers=num_envs"):
            pool.save()
        with pytest.raises(errors.UnsupportedError, match=r"one env per worker, got 2 envs and 1 .*num_workers=num_en"):
            pool.save(by="fork")
    with stepmill.make(Walker, num_envs=2, backend="inline") as pool:
        pool.reset()
        assert "use backend='process' with num_workers=num_envs" in pool.state_kind
        for by in (None, "fork"):
            with pytest.raises(errors.UnsupportedError, match="backend='process'"):
                pool.save(by=by)
        with pytest.raises(errors.UnsupportedError, match=r"clone_limit: only .*backend='process'"):
            pool.clone_limit = 3


OBSTACLES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "thread": (lambda _: threading.Thread(target=threading.Event().wait, daemon=True).start(), "1 more thread"),
    "child": (lambda _: os.posix_spawn("/bin/sleep", ["sleep", "99"], {}), r"a child process \(sleep"),
    "socket": (lambda _: socket.socketpair(), "a socket open"),
    "pipe": (lambda _: os.pipe(), "a pipe open"),
    "epoll": (lambda _: select.epoll(), "an epoll open"),
    "event": (lambda _: os.eventfd(0), "an object of the kernel open"),
    "device": (lambda _: os.open("/dev/ptmx", os.O_RDWR), r"a device open \(descriptor \d+, /dev/"),
    "file": (lambda _: tempfile.TemporaryFile(), "a file, whose position would be shared, open"),  # noqa: SIM115
    "folder": (lambda _: os.open("/", os.O_RDONLY), "a folder, whose position would be shared, open"),
    "memory": (lambda _: mmap.mmap(-1, 4096), r"memory that it shares \(/dev/zero"),
    "timer": (lambda _: signal.setitimer(signal.ITIMER_VIRTUAL, 9999), "a timer"),
}


def put_in_the_way(env: Any, kind: str) -> None:
    env.unwrapped.obstacle = OBSTACLES[kind][0](env)


@pytest.mark.parametrize("kind", OBSTACLES)
def test_what_a_fork_cannot_copy_is_refused_with_its_reason(kind: str) -> None:
    with make(num_envs=2, seed=1) as pool, make(num_envs=2, seed=1) as twin:
        pool.reset()
        twin.reset()
        earlier = pool.save()
        pool.apply(lambda env: put_in_the_way(env, kind), env_ids=[1])
        for _ in range(2):
            with pytest.raises(
                errors.StateError, match=f"save: env 1: its process cannot .*it has {OBSTACLES[kind][1]}"
            ):
                pool.save()
        assert_same(go(pool), go(twin))
        assert len(clones_of(pool)) == 2
        pool.restore(earlier)  # from before there was any
        pool.save()


def test_harmless_devices_and_memory_that_is_only_read_are_copied() -> None:
    def open_some(env: Any) -> None:
        unwrapped = env.unwrapped
        unwrapped.device = os.open("/dev/urandom", os.O_RDONLY)
        unwrapped.place = os.open("/", os.O_PATH)
        before = set(os.listdir("/proc/self/fd"))
        with tempfile.TemporaryFile() as file:
            file.truncate(4096)
            unwrapped.memory = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
        for fd in set(os.listdir("/proc/self/fd")) - before:
            with contextlib.suppress(OSError):
                os.close(int(fd))  # mmap has kept one

    with make(num_envs=1) as pool:
        pool.reset()
        pool.apply(open_some)
        pool.restore(pool.save())


# ---- how long a clone lives ----------------------------------------------------------------------


def test_a_clone_ends_with_the_last_state_that_is_its() -> None:
    with make() as pool:
        pool.reset()
        states = pool.save()
        one, two = clones_of(pool)[0], clones_of(pool)[1]
        assert all(parent_of(pid) == parent_of(worker_pids(pool)[0]) for pid in (one, two))
        assert os.getsid(one) == one
        last = states[1:][1]
        del states
        assert len(clones_of(pool)) == 1
        (left,) = clones_of(pool)
        assert eventually(lambda: len(descendants() & {one, two, left}) == 1)
        pool.restore(last, [0])
        del last
        assert clones_of(pool) == []
        assert eventually(lambda: left not in descendants())
        go(pool)


def test_clones_outlive_their_workers_and_end_with_the_pool() -> None:
    before = belongings()
    pool = make(seed=2)
    pool.reset()
    states = pool.save()
    expected = go(pool)
    for pid in worker_pids(pool):
        signal_to(pid)
    pool.restore(states)  # without a failure, and without a reset
    assert_same(go(pool), expected)
    pids = clones_of(pool)
    pool.close()
    assert eventually(lambda: not descendants() & set(pids))
    with make() as other, pytest.raises(errors.StateError, match=r"env 0 .* it was saved by fork in another pool"):
        other.restore(states)
    assert not left_since(before)


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["the template", "the caller"])
def test_clones_end_with_those_above_them(whose: str) -> None:
    out = run_well(
        f"""
        import os, signal
        import stepmill
        from support.processes import worker_pids, parent_of
        from support.envs import CountingEnv
        if __name__ == "__main__":
            pool = stepmill.make(CountingEnv, num_envs=1, backend="process", num_workers=1)
            pool.reset()
            states = pool.save()
            print(*[one["pid"] for one in pool.stats()["clones"]], flush=True)
            if {whose == "the template"}:
                os.kill(parent_of(*worker_pids(pool)), signal.SIGKILL)
                try:
                    pool.restore(states)
                except stepmill.errors.StateError as error:
                    print(error)
            os._exit(0)
        """
    )
    pid, *more = out.splitlines()
    assert eventually(
        lambda: not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text()
    )
    assert more == [] if whose == "the caller" else "cannot be restored" in more[0] or "does not answer" in more[0]


def test_a_forked_child_of_the_caller_leaves_clones_alone() -> None:
    with make() as pool:
        pool.reset()
        states = [pool.save()]
        expected = go(pool)
        assert went_well(child(lambda: (states.clear(), gc.collect())))
        pool.restore(states[0])
        assert_same(go(pool), expected)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_clone_that_was_killed_is_an_error_and_nothing_else(how: str) -> None:
    with make(seed=4) as pool, make(seed=4) as twin:
        pool.reset()
        twin.reset()
        states = pool.save()
        middle = next(one for one in pool.stats()["clones"] if one["pid"] == states[1].keeper.pid)["pid"]
        assert_same(go(pool), go(twin))
        if how == "killed":
            signal_to(middle)
        else:
            states[1].keeper.wire.hang_up()  # as if it were killed while it is asked
        for _ in range(2):
            with pytest.raises(errors.StateError, match="the state for env 1 cannot be restored: its process"):
                pool.restore(states)
        assert_same(go(pool), go(twin))
        assert len(clones_of(pool)) == 2
        pool.restore(states[::2], [0, 2])  # the others are still good
        assert len(pool.save()) == 3


def test_a_pickled_state_is_only_a_ticket(tmp_path: Path) -> None:
    with make(num_envs=1, seed=1) as pool, make(num_envs=1, seed=1) as other:
        pool.reset()
        states = pool.save()
        copy = pickle.loads(pickle.dumps(states))
        expected = go(pool)
        pool.restore(copy)
        assert_same(go(pool), expected)
        with pytest.raises(errors.StateError, match="in another pool"):
            other.restore(copy)
        del states
        with pytest.raises(errors.StateError, match="its process has ended, as nobody has the state"):
            pool.restore(copy)
        assert len(go(pool)) == 4
    inline = stepmill.make(Walker, num_envs=1, backend="inline")
    with inline, pytest.raises(errors.StateError, match="another kind: it was saved with 'fork'"):
        inline.restore(copy)


# ---- failures ------------------------------------------------------------------------------------


def die_at_the_next_fork(env: Any) -> None:
    os.register_at_fork(before=lambda: os._exit(3))


def fail_to_become_a_worker(env: Any) -> None:
    """In what is forked from a clone, as if there were no memory."""
    os.register_at_fork(after_in_child=lambda: setattr(env.unwrapped, "forks", getattr(env.unwrapped, "forks", 0) + 1))
    os.register_at_fork(after_in_child=lambda: env.unwrapped.forks == 2 and os._exit(5))


def test_a_worker_that_dies_while_it_saves_costs_what_a_death_costs() -> None:
    with make(seed=6) as pool:
        pool.reset()
        states = pool.save()
        expected = go(pool)
        pool.apply(die_at_the_next_fork, env_ids=[1])
        with pytest.raises(errors.WorkerDiedError, match="env 1 failed in call"):
            pool.save()
        assert len(clones_of(pool)) == 3
        with pytest.raises(errors.WorkerDiedError):
            pool.step(np.ones(3, int))
        pool.restore(states)
        assert_same(go(pool), expected)


def test_a_clone_whose_copy_dies_changes_no_env() -> None:
    with make(seed=6) as pool, make(seed=6) as twin:
        pool.reset()
        twin.reset()
        earlier = pool.save([0, 2])
        pool.apply(fail_to_become_a_worker, env_ids=[1])
        middle = pool.save([1])
        assert_same(go(pool), go(twin))
        with pytest.raises(errors.StateError, match="the state for env 1 cannot be restored"):
            pool.restore([earlier[0], middle[0], earlier[1]])
        assert_same(go(pool), go(twin))
        assert eventually(lambda: len(descendants(parent_of(worker_pids(pool)[0]))) == 6)  # workers and clones


def test_a_restored_env_that_fails_is_built_again() -> None:
    with make(num_envs=2, seed=6, on_error="restart") as pool:
        pool.reset()
        pool.restore(pool.save())
        kill_worker(pool, 0)
        *_, truncated, info = pool.step(np.ones(2, int))
        assert (truncated.tolist(), info["abnormal"].tolist()) == ([True, False], [True, False])
        go(pool)
        assert pool.stats()["restarts"] == 1
        pool.restore(pool.save())


@pytest.mark.parametrize("call", ["save", "restore"])
@pytest.mark.parametrize("stride", [149, pytest.param(1, marks=pytest.mark.long)])
def test_a_signal_handler_leaves_the_old_state_or_the_new_one(call: str, stride: int) -> None:
    with make(num_envs=2, seed=9, batch_size=2) as pool:
        pool.reset()
        first = pool.save()
        new = go(pool)
        second = pool.save()
        old = go(pool)
        n, raised = 1, True
        while raised:
            pool.restore(second)
            raised = False
            try:
                with Alarms(n, __file__):
                    pool.restore(first) if call == "restore" else pool.save()
            except TimeoutError:
                raised = True
            with contextlib.suppress(errors.NothingInFlightError):
                pool.recv()
            got = go(pool)
            assert any(_are_equal(got, one) for one in ((old, new) if call == "restore" else (old,)))
            n += stride
        del first, second
        gc.collect()
        assert eventually(lambda: len(descendants(parent_of(worker_pids(pool)[0]))) == 2)


def _are_equal(one: Any, other: Any) -> bool:
    try:
        assert_same(one, other)
    except AssertionError:
        return False
    return True


# ---- limits --------------------------------------------------------------------------------------


def test_there_are_limits_and_the_error_names_them() -> None:
    with make(num_envs=2) as pool:
        assert (pool.clone_limit, pool.clone_memory) == (64, None)
        pool.reset()
        pool.clone_limit = 3
        states = [pool.save()]
        with pytest.raises(errors.ResourceError, match=r"2 states .* and 2 more .*pool.clone_limit=3"):
            pool.save()
        states.append(pool.save([0]))
        pool.clone_limit = 9
        told = pool.stats()["clones"]
        assert len(told) == 3
        assert all(one["memory_bytes"] > 0 for one in told)
        pool.clone_memory = 1000
        with pytest.raises(errors.ResourceError, match=r"save: 3 states .* MiB .*pool.clone_memory=1000"):
            pool.save()
        states.clear()
        states = [pool.save()]
        pool.clone_memory = None
        states.append(pool.save())
        for bad in (-1, 1.5, "many", True):
            with pytest.raises(errors.ConfigError, match="clone_"):
                pool.clone_limit = bad
            with pytest.raises(errors.ConfigError, match="clone_"):
                pool.clone_memory = bad


def test_a_clone_shares_the_memory_of_its_worker() -> None:
    class Large(Walker):
        def __init__(self) -> None:
            self.memory = np.random.default_rng(0).random(4 << 20)  # 32 MiB

    with make(Large, 1) as pool:
        pool.reset()
        states = pool.save()
        (pid,) = clones_of(pool)
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        private = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private"))
        assert private < 8 << 10
        pool.restore(states)


@pytest.mark.parametrize("times", [20, pytest.param(10_000, marks=pytest.mark.long)])
def test_saves_restores_and_forks_leave_nothing(times: int) -> None:
    with make(num_envs=2, seed=1) as pool:
        pool.reset()
        pool.restore(pool.save())
        gc.collect()
        template = parent_of(worker_pids(pool)[0])
        before, files = belongings(), len(os.listdir(f"/proc/{template}/fd"))
        for i in range(times):
            states = pool.save()
            if i % 3 == 0:
                pool.restore(states)
            if i % 5 == 0:
                pool.fork(i % 2, [1 - i % 2])
            if i % 7 == 0:
                go(pool, 1)
        del states
        assert eventually(lambda: len(descendants(template)) == 2)
        assert eventually(lambda: len(os.listdir(f"/proc/{template}/fd")) <= files)
        left = belongings() - before
        assert not [one for one in left if not one.startswith("process ")]
        open_there = pool.apply(lambda env: len(os.listdir("/proc/self/fd")))
        assert max(open_there) < 12
