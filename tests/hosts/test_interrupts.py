"""Ends of every kind while steps are under way: Ctrl-C, timeouts, a second thread, close, collection, exit, fork.

A gate (see ``GatedPool``) holds the steps back until the test says so; nothing sleeps.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from functools import partial
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.envs import ProbeTwin
from support.probes import KINDS, START, VIEWS, GatedPool, make_probe, seen
from support.subprocesses import run_well, start
from support.waiting import in_thread, wait_until_inside

# Sends SIGINT to this process as soon as the main thread waits inside the pool.
INTERRUPT = """
def interrupt(pool):
    def strike():
        wait_until_inside(pool)
        os.kill(os.getpid(), signal.SIGINT)
    return in_thread(strike)
"""


# ---- Ctrl-C --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [4, 2], ids=["sync", "async"])
@pytest.mark.parametrize("view", VIEWS)
def test_ctrl_c_ends_recv_and_leaves_the_actions_in_flight(view: str, batch_size: int) -> None:
    out = run_well(
        START
        + INTERRUPT
        + f"""
gated = GatedPool(4, {view!r}, batch_size={batch_size})
pool = gated.pool
pool.send(np.zeros(4), np.arange(4))
for _ in range(3):
    thread = interrupt(pool)
    try:
        pool.recv()
    except KeyboardInterrupt:
        print("interrupted", pool.stats()["in_flight"])
    thread.join()
gated.open(4)
ids = []
while len(ids) < 4:
    ids += seen({view!r}, pool.recv()).ids
print(*sorted(ids), pool.stats()["in_flight"])
"""
    )
    assert out.splitlines() == ["interrupted 4"] * 3 + ["0 1 2 3 0"]


@pytest.mark.parametrize("num_envs", [1, 64, 1024])
def test_ctrl_c_ends_the_very_first_step(num_envs: int) -> None:
    """Nobody knows yet what a step costs, so it is not the caller who tries."""
    out = run_well(
        START
        + INTERRUPT
        + f"""
read, write = os.pipe()
pool = stepmill.make("Probe-v0", num_envs={num_envs}, gate_fd=read)
pool.reset()
thread = interrupt(pool)
try:
    pool.step(np.zeros({num_envs}))
except KeyboardInterrupt:
    print("interrupted", pool.stats()["in_flight"])
thread.join()
os.close(write)
print(len(pool.recv()[0]))
"""
    )
    assert out.splitlines() == [f"interrupted {num_envs}", str(num_envs)]


@pytest.mark.parametrize("view", VIEWS)
def test_ctrl_c_ends_step_and_reset_and_reset_drains(view: str) -> None:
    out = run_well(
        START
        + INTERRUPT
        + f"""
gated = GatedPool(3, {view!r})
pool = gated.pool
calls = [lambda: pool.step(np.zeros(3)), pool.reset]  # the reset waits for the steps that it drains
for call in calls:
    thread = interrupt(pool)
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted", pool.stats()["in_flight"])
    thread.join()
gated.open(3)
pool.reset()
print(pool.stats()["in_flight"])
gated.open(3)
print(*seen({view!r}, pool.step(np.zeros(3))).elapsed)
"""
    )
    assert out.splitlines() == ["interrupted 3"] * 2 + ["0", "1 1 1"]


def test_ctrl_c_from_outside_ends_the_program() -> None:
    code = (
        START
        + """
gated = GatedPool(2)
pool = gated.pool
pool.send(np.zeros(2))
in_thread(lambda: (wait_until_inside(pool), print("waiting", flush=True)))
try:
    pool.recv()
except KeyboardInterrupt:
    print("interrupted", flush=True)
sys.stdin.read()  # until the test has read that, the steps are still held
gated.open_for_good()
"""
    )
    with start(code) as process:
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.communicate() == ("", "")
        assert process.returncode == 0


def test_ctrl_c_ends_close_and_a_second_close_ends_the_pool() -> None:
    out = run_well(
        START
        + """
before = threads()
signal.signal(signal.SIGALRM, signal.default_int_handler)

def interrupted_close():
    gated = GatedPool(2)
    gated.pool.send(np.zeros(2))
    try:
        gated.pool.recv(timeout=0.01)
    except errors.RecvTimeoutError:  # always: the gate is shut
        pass
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        gated.pool.close()
    except KeyboardInterrupt:
        return gated
    signal.setitimer(signal.ITIMER_REAL, 0)
    return None

# No step had begun where close() had nothing to wait for: then again.
gated = next(filter(None, (interrupted_close() for _ in range(100))))
print(gated.pool.closed, len(threads() - before) > 0)
gated.open_for_good()
gated.pool.close()
print(gated.pool.closed, new_threads(before))
"""
    )
    assert out.splitlines() == ["True True", "True 0"]


@pytest.mark.parametrize("phase", ["step", "reset"])
@pytest.mark.parametrize("view", VIEWS)
def test_ctrl_c_inside_a_python_env_costs_only_that_row(view: str, phase: str) -> None:
    """The env that was interrupted answers with a failed row; the others' actions are done by the next recv."""
    out = run_well(
        START
        + f"""
struck = []

class Struck(ProbeTwin):
    def strike(self, where):
        if where == {phase!r} and not struck and self.place == 1:
            struck.append(True)
            signal.raise_signal(signal.SIGINT)

    def __init__(self, env_id, **config):
        self.place = env_id
        super().__init__(**config)

    def reset(self, **arguments):
        self.strike("reset")
        return super().reset(**arguments)

    def step(self, action):
        self.strike("step")
        return super().step(action)

view = {view!r}
pool = stepmill.make(Struck, view, num_envs=3, backend="inline")
for turn in range(3):
    pool.send([0.5] * 3)
    try:
        pool.recv()
    except KeyboardInterrupt:
        print("interrupted", pool.stats()["in_flight"])
        try:
            pool.recv()
        except stepmill.EnvError as error:
            batch = seen(view, error.batch)
            print(*batch.ids, *batch.abnormal, type(error.__cause__).__name__, error.env_id)
print(*seen(view, pool.step([0.5] * 3)).abnormal, pool.stats()["in_flight"])
"""
    )
    assert out.splitlines() == [
        "interrupted 3",
        "0 1 2 False True False KeyboardInterrupt 1",
        "False False False 0",
    ]


def test_a_signal_handler_that_does_not_raise_lets_recv_go_on() -> None:
    out = run_well(
        START
        + """
gated = GatedPool(2)
pool = gated.pool
signal.signal(signal.SIGINT, lambda *_: (print("heard"), gated.open(2)))
pool.send(np.zeros(2))
in_thread(lambda: (wait_until_inside(pool), os.kill(os.getpid(), signal.SIGINT)))
print(len(pool.recv()[1]))
"""
    )
    assert out.split() == ["heard", "2"]


# ---- timeouts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [3, 2], ids=["sync", "async"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_timeout_loses_nothing(view: str, batch_size: int) -> None:
    with GatedPool(3, view, batch_size=batch_size) as gated:
        pool = gated.pool
        pool.send([0.25, 0.5, 0.75], [0, 1, 2])
        for timeout in (0, 0.001, np.float32(0.01)):
            with pytest.raises(errors.RecvTimeoutError, match="in flight") as caught:
                pool.recv(timeout=timeout)
            assert isinstance(caught.value, TimeoutError)
            assert pool.stats()["in_flight"] == 3
        gated.open(3)
        rewards = {}
        while pool.stats()["in_flight"]:
            batch = seen(view, pool.recv(timeout=None))
            rewards.update(zip(batch.ids, batch.reward.tolist(), strict=True))
        assert rewards == {0: 0.25, 1: 0.5, 2: 0.75}


def test_a_timeout_of_zero_collects_what_is_ready() -> None:
    with GatedPool(2, batch_size=1) as gated:
        pool = gated.pool
        pool.send([0.0, 0.0], [0, 1])
        ids: list[int] = []
        for count in (1, 2):
            gated.open(1)
            while len(ids) < count:
                with contextlib.suppress(errors.RecvTimeoutError):
                    ids += pool.recv(timeout=0)[4]["env_id"].tolist()
        assert sorted(ids) == [0, 1]


def test_a_timeout_on_inline_is_looked_at_between_two_envs() -> None:
    with make_probe("python", num_envs=3) as pool:
        pool.reset()
        pool.send([0.25, 0.5, 0.75])
        with pytest.raises(errors.RecvTimeoutError):
            pool.recv(timeout=0)
        assert pool.stats()["in_flight"] == 3
        assert pool.recv()[1].tolist() == [0.25, 0.5, 0.75]


# ---- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
def test_waiting_does_not_hold_the_interpreter(view: str) -> None:
    """Another Python thread opens the gate that recv waits for."""
    with GatedPool(2, view) as gated:
        pool = gated.pool
        thread = in_thread(lambda: (wait_until_inside(pool), gated.open(2)))
        assert seen(view, pool.step([0.25, 0.5])).reward.tolist() == [0.25, 0.5]
        thread.join()


@pytest.mark.parametrize("view", VIEWS)
def test_a_second_thread_is_refused_and_the_first_is_not_disturbed(view: str) -> None:
    with GatedPool(2, view) as gated:
        pool = gated.pool
        results: list[Any] = []
        pool.send([0.25, 0.5])
        thread = in_thread(lambda: results.append(pool.recv()))
        wait_until_inside(pool)
        for call in (pool.recv, pool.reset, pool.async_reset, pool.close, lambda: pool.send([0.0, 0.0])):
            with pytest.raises(errors.ConcurrentUseError, match="another thread") as caught:
                call()
            assert isinstance(caught.value, RuntimeError)
        assert not pool.closed
        gated.open(2)
        thread.join()
        assert seen(view, results[0]).reward.tolist() == [0.25, 0.5]


@pytest.mark.parametrize("view", VIEWS)
def test_a_second_thread_is_refused_while_a_python_env_steps(view: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def on_step() -> None:
        inside.set()
        go_on.wait()

    with stepmill.make(ProbeTwin, view, num_envs=2, backend="inline", on_step=on_step) as pool:
        pool.reset()
        results: list[Any] = []
        thread = in_thread(lambda: results.append(pool.step([0.25, 0.5])))
        inside.wait()
        for call in (pool.recv, pool.reset, pool.async_reset, pool.close, pool.stats, lambda: pool.send([0.0, 0.0])):
            with pytest.raises(errors.ConcurrentUseError, match="another thread"):
                call()
        assert not pool.closed
        go_on.set()
        thread.join()
        assert seen(view, results[0]).reward.tolist() == [0.25, 0.5]
        assert seen(view, pool.step([0.75, 1.0])).reward.tolist() == [0.75, 1.0]


@pytest.mark.parametrize("name", ["call", "get_attr", "set_attr", "render"])
def test_a_second_thread_is_refused_while_an_env_is_called(name: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hold(*_: Any) -> None:
        inside.set()
        go_on.wait()

    class Slow(ProbeTwin):
        talk = render = hold
        slow = property(hold, hold)

    calls = {
        "call": lambda: pool.call("talk"),
        "get_attr": lambda: pool.get_attr("slow"),
        "set_attr": lambda: pool.set_attr("slow", 1),
        "render": lambda: pool.render(),
    }
    with stepmill.make(Slow, num_envs=2, backend="inline") as pool:
        pool.reset()
        thread = in_thread(calls[name])
        inside.wait()
        for call in (*calls.values(), pool.close, lambda: pool.step([0.0, 0.0])):
            with pytest.raises(errors.ConcurrentUseError, match="another thread"):
                call()
        go_on.set()
        thread.join()
        assert pool.step([0.25, 0.5])[1].tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    "use", ["close()", "step([0.0, 0.0])", "recv()", "reset()", "send([0.0, 0.0])", "render()", "get_attr('closed')"]
)
def test_an_env_cannot_use_the_pool_that_steps_it(use: str) -> None:
    uses = [use]

    def on_step() -> None:
        if uses:
            eval(f"pool.{uses.pop()}", {"pool": pool})

    with stepmill.make(ProbeTwin, num_envs=2, backend="inline", on_step=on_step) as pool:
        pool.reset()
        with pytest.raises(stepmill.EnvError, match="this thread is already inside this pool") as caught:
            pool.step([0.25, 0.5])
        assert isinstance(caught.value.__cause__, errors.ConcurrentUseError)
        assert caught.value.batch[1].tolist() == [0.0, 0.5]
        assert not pool.closed
        assert pool.step([0.25, 0.5])[1].tolist() == [0.0, 0.5]


def test_a_signal_handler_cannot_use_the_pool_that_it_interrupts() -> None:
    refused: list[errors.ConcurrentUseError] = []

    def handler(*_: Any) -> None:
        with pytest.raises(errors.ConcurrentUseError, match="signal handler") as caught:
            pool.close()
        refused.append(caught.value)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        raising = partial(signal.raise_signal, signal.SIGUSR1)
        with stepmill.make(ProbeTwin, num_envs=2, backend="inline", on_step=raising) as pool:
            pool.reset()
            assert pool.step([0.25, 0.5])[1].tolist() == [0.25, 0.5]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_threads_may_take_turns(kind: str) -> None:
    with make_probe(kind, num_envs=2, length=1000) as pool:
        pool.reset()
        for turn in range(1, 20):
            results: list[Any] = []
            in_thread(lambda into=results: into.append(pool.step([0.0, 0.0]))).join()
            assert results[0][4]["elapsed_step"].tolist() == [turn, turn]


def test_two_closes_at_once() -> None:
    out = run_well(
        START
        + """
for _ in range(20):
    gated = GatedPool(2)
    pool = gated.pool
    pool.send(np.zeros(2))

    def close():
        try:
            pool.close()
        except errors.ConcurrentUseError:
            pass

    threads = [in_thread(close) for _ in range(4)]
    gated.open_for_good()
    for thread in threads:
        thread.join()
    pool.close()
    assert pool.closed
"""
    )
    assert out == ""
