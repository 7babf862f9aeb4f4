"""Sessions whose envs fail, whose calls are cancelled, and whose pool or loop ends."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.backends import INLINE, THREAD, TWO, Backend
from support.envs import ProbeTwin
from support.envs.faulty import DEATHS, FaultyEnv
from support.envs.remote import Teller
from support.probes import GatedPool
from support.processes import belongings, left_since
from support.sessions import PLACES, Place, turns
from support.waiting import Gate, doing, ends

pytestmark = pytest.mark.usefixtures("server", "deadline")


# ---- calls that are cancelled --------------------------------------------------------------------


async def in_step(gate: Gate, env: Any, action: float = 0.5) -> asyncio.Task[Any]:
    """A step that stands at the gate."""
    task = asyncio.create_task(env.step(np.float32(action)))
    await asyncio.to_thread(gate.wait)
    return task


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def gated(gate: Gate, num_envs: int, at: tuple[int, ...] = (1,), **arguments: Any) -> Any:
    return stepmill.make(
        FaultyEnv,
        num_envs=num_envs,
        num_workers=num_envs,
        backend="process",
        mishap="gate",
        at=at,
        folder=gate.folder,
        **arguments,
    )


def test_the_step_after_a_cancelled_one_waits_for_it(gate: Gate) -> None:
    """The result of the cancelled one is dropped, and every action has its own."""

    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            await cancelled(await in_step(gate, env))
            after = asyncio.create_task(env.step(np.float32(0.25)))
            await turns()
            assert not after.done()
            gate.open(0)
            observation, reward, *_ = await after
            assert (observation[1], reward) == (2.0, 0.25)

    with gated(gate, 1) as pool:
        asyncio.run(main(pool))


def test_a_reset_waits_for_a_cancelled_step_too(gate: Gate) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            await cancelled(await in_step(gate, env))
            waiting = asyncio.create_task(env.reset())
            await turns()
            await cancelled(waiting)  # as often as one likes
            gate.open(0)
            assert (await env.reset())[0][1] == 0.0

    with gated(gate, 1) as pool:
        asyncio.run(main(pool))


@pytest.mark.parametrize("ends", ["fails", "ends"])
def test_an_end_that_nobody_saw_is_told_by_the_next_step(ends: str) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            task = asyncio.create_task(env.step(2 if ends == "fails" else 0))
            await asyncio.sleep(0)  # it is asked for
            await cancelled(task)
            with pytest.raises(errors.NeedsResetError, match="has failed" if ends == "fails" else "is over") as caught:
                await env.step(0)
            assert isinstance(caught.value.__cause__, errors.EnvError if ends == "fails" else type(None))
            await env.reset()
            assert len(await env.step(0)) == 5

    with stepmill.make(Teller, num_envs=1, backend="inline", max_episode_steps=1 if ends == "ends" else 4) as pool:
        asyncio.run(main(pool))


def test_an_env_that_is_left_in_a_step_is_free_when_its_row_has_come(gate: Gate) -> None:
    """Leaving does not wait. The next session finds nothing of the step."""

    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            task = await in_step(gate, env)
        with pytest.raises(errors.UsageError, match="was left"):
            await task
        assert pool.in_flight == [0]
        with pytest.raises(errors.SessionTimeoutError):
            async with pool.session(timeout=0.01):
                pass
        waiting = asyncio.create_task(first_of(pool))
        await turns()
        assert not waiting.done()
        gate.open(0)
        assert (await waiting)[1] == 0.0

    async def first_of(pool: Any) -> np.ndarray:
        async with pool.session() as env:
            observation, _ = await env.reset()
            return observation

    with gated(gate, 1) as pool:
        asyncio.run(main(pool))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_thousand_cancelled_steps_lose_no_env(place: Place) -> None:
    """Each at another moment: before it is sent, on its way, or when its row is there."""

    async def session(pool: Any, number: int) -> None:
        async with pool.session(seed=number) as env:
            await env.reset()
            for i in range(10):
                task = asyncio.create_task(env.step(pool.spec.action_space.dtype.type(0)))
                await turns((number + i) % 4)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                try:
                    await env.step(pool.spec.action_space.dtype.type(0))
                except errors.NeedsResetError:
                    await env.reset()

    async def main(pool: Any) -> None:
        await asyncio.gather(*(session(pool, number) for number in range(100)))

    with place.make(8) as pool:
        asyncio.run(main(pool))
        assert pool.in_flight == []
        assert sorted(pool.reset()[1]["env_id"].tolist()) == list(range(8))


# ---- envs that fail ------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("backend", [INLINE, TWO], ids=str)
def test_a_failure_is_raised_for_its_owner_alone(backend: Backend, on_error: str) -> None:
    async def broken(env: Any) -> None:
        for _ in range(5):  # more than max_restarts
            await env.reset()
            with pytest.raises(errors.EnvError, match=f"env {env.env_id} failed in step") as caught:
                await env.step(2)
            assert isinstance(caught.value.__cause__, ValueError)
            observation, reward, terminated, truncated, info = caught.value.batch
            assert (reward, terminated, truncated, info["abnormal"]) == (0.0, False, True, True)
            assert observation.shape == (2,)
            assert caught.value.errors == [caught.value]
            with pytest.raises(errors.NeedsResetError):
                await env.step(0)

    async def good(env: Any) -> None:
        for _ in range(10):
            await env.reset()
            for _ in range(4):
                assert not (await env.step(1))[3]

    async def main(pool: Any) -> None:
        async with pool.session() as one, pool.session() as two, pool.session() as three:
            await asyncio.gather(good(one), broken(two), good(three))

    with backend.make(Teller, num_envs=3, on_error=on_error, max_restarts=2) as pool:
        asyncio.run(main(pool))


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_an_invalid_action_is_an_error_of_its_owner_and_changes_nothing(place: Place) -> None:
    async def main(pool: Any) -> None:
        async with pool.session(seed=1) as wrong, pool.session(seed=2) as right:
            await asyncio.gather(wrong.reset(), right.reset())
            action = pool.spec.action_space.dtype.type(0)
            bad = np.array([np.nan, 0.0])
            results = await asyncio.gather(wrong.step(bad), right.step(action), return_exceptions=True)
            assert isinstance(results[0], errors.ActionError)
            assert len(results[1]) == 5
            with pytest.raises(errors.ActionError, match=f"action of env {wrong.env_id}"):
                await wrong.step(bad)
            assert len(await wrong.step(action)) == 5

    with place.make(2) as pool:
        asyncio.run(main(pool))


@pytest.mark.parametrize("death", DEATHS)
def test_a_worker_that_dies_fails_its_env_alone(death: str, tmp_path: Any) -> None:
    """The loop sleeps meanwhile: the pool's own answer wakes it, and so does the need for another worker."""

    async def steps(env: Any, count: int) -> None:
        await env.reset()
        for _ in range(count):
            await env.step(np.float32(0.5))

    async def main(pool: Any) -> None:
        async with pool.session() as one, pool.session() as other:
            await steps(one, 2)
            await steps(other, 2)
            (tmp_path / "mishap").write_text(death)
            with pytest.raises(errors.WorkerDiedError, match=DEATHS[death]) as caught:
                await one.step(np.float32(0.5))
            assert caught.value.env_id == one.env_id
            (tmp_path / "mishap").write_text("")
            await asyncio.gather(steps(one, 5), steps(other, 5))

    with stepmill.make(FaultyEnv, num_envs=2, num_workers=2, backend="process", at=(3,), folder=tmp_path) as pool:
        asyncio.run(main(pool))
        assert pool.stats()["restarts"] == 1


def test_a_missed_deadline_wakes_the_loop(gate: Gate) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            with pytest.raises(errors.EnvTimeoutError, match="step_timeout"):
                await env.step(np.float32(0.5))
            gate.close()
            await env.reset()
            await env.step(np.float32(0.5))

    folder = gate.folder
    with gated(gate, 1, step_timeout=0.3) as pool:
        asyncio.run(main(pool))
    gate.__init__(folder, 1)  # type: ignore[misc]  # for the fixture to close


def test_an_env_that_was_lost_while_nobody_used_it_tells_its_next_owner() -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            (pid,) = pool.call("process")
            os.kill(pid, signal.SIGKILL)
            assert await asyncio.to_thread(ends, pid)
            with pytest.raises(errors.WorkerDiedError):
                await env.step(np.float32(0.5))
            await env.reset()
            await env.step(np.float32(0.5))

    with stepmill.make(FaultyEnv, num_envs=1, backend="process") as pool:
        asyncio.run(main(pool))


# ---- the wrong order of calls --------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_step_needs_a_reset_before_it(mode: str) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            with pytest.raises(errors.NeedsResetError, match="not reset it yet"):
                await env.step(0.0)
            for _ in range(2):
                await env.reset()
                for step in range(3):
                    assert (await env.step(0.0))[2] == (step == 2)
                for _ in range(2):
                    with pytest.raises(errors.NeedsResetError, match="is over"):
                        await env.step(0.0)
            await env.reset()
        async with pool.session() as env:  # where the last one has left it
            with pytest.raises(errors.NeedsResetError, match="not reset it yet"):
                await env.step(0.0)

    with stepmill.make(ProbeTwin, num_envs=1, length=3, backend="inline", autoreset=mode) as pool:
        asyncio.run(main(pool))


def test_one_call_at_a_time(gate: Gate) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            task = await in_step(gate, env)
            for call in (lambda: env.step(np.float32(0.5)), env.reset):
                with pytest.raises(errors.InFlightError, match="another task"):
                    await call()
            gate.open(0)
            assert (await task)[1] == 0.5

    with gated(gate, 1) as pool:
        asyncio.run(main(pool))


def test_a_session_is_used_inside_its_block() -> None:
    async def main(pool: Any) -> None:
        session = pool.session()
        for call in (session.reset, lambda: session.step(0), lambda: asyncio.to_thread(lambda: session.env_id)):
            with pytest.raises(errors.UsageError, match="not entered yet"):
                await call()
        async with session as env:
            assert repr(env) == "Session(env_id=0)"
            with pytest.raises(errors.UsageError, match="open already"):
                await session.__aenter__()
        with pytest.raises(errors.UsageError, match="left"):
            await session.reset()
        async with session as env:  # another env, perhaps
            await env.reset()

    with stepmill.make("CartPole-v1", num_envs=1) as pool:
        asyncio.run(main(pool))


CALLS = {
    "step": lambda pool: pool.step(np.zeros(2, int)),
    "send": lambda pool: pool.send(np.zeros(2, int)),
    "recv": lambda pool: pool.recv(),
    "reset": lambda pool: pool.reset(),
    "reset one": lambda pool: pool.reset([1]),
    "async_reset": lambda pool: pool.async_reset(),
    "rollout": lambda pool: pool.rollout(lambda obs, ids, generators: np.zeros(len(obs), int), 1),
    "save": lambda pool: pool.save(),
    "fork": lambda pool: pool.fork(0, [1]),
    "checkpoint": lambda pool: pool.checkpoint("never.pool"),
    "drain": lambda pool: pool.drain(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("backend", [THREAD, TWO], ids=str)
def test_sessions_have_the_pool_to_themselves(backend: Backend, call: str) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            with pytest.raises(errors.UsageError, match=r"1 session of this pool is open"):
                CALLS[call](pool)
            assert pool.stats()["steps"] == 1
            await env.step(0)

    with backend.make("CartPole-v1", num_envs=2) as pool:
        asyncio.run(main(pool))
        assert pool.reset()[0].shape == (2, 4)
        assert pool.step(np.zeros(2, int))[0].shape == (2, 4)


def test_what_asks_envs_still_works() -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            await env.step(np.float32(0.5))
            assert pool.call("visit", 3, env_ids=[env.env_id]) == ((1, 3),)
            assert pool.get_attr("trap", env_ids=[env.env_id]) == (1,)
            assert pool.render([env.env_id])[0].max() == 1
            assert pool.stats()["in_flight"] == 0
            assert (await env.step(np.float32(0.5)))[0][1] == 2.0

    with stepmill.make(FaultyEnv, num_envs=2, backend="process") as pool:
        asyncio.run(main(pool))


def test_a_pool_with_something_in_flight_has_no_sessions() -> None:
    async def main(pool: Any) -> None:
        async with pool.session():
            pass

    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        pool.async_reset()
        with pytest.raises(errors.InFlightError, match="2 envs are in flight"):
            asyncio.run(main(pool))
        pool.recv()
        asyncio.run(main(pool))


def test_a_recorded_order_is_not_that_of_sessions(tmp_path: Any) -> None:
    async def main(pool: Any) -> None:
        async with pool.session():
            pass

    with stepmill.make("CartPole-v1", num_envs=4, batch_size=2) as pool:
        pool.record_order(tmp_path / "order")
        with pytest.raises(errors.UsageError, match="recorded or replayed"):
            asyncio.run(main(pool))


# ---- loops ---------------------------------------------------------------------------------------


def test_a_pool_serves_one_loop_at_a_time() -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()

            async def elsewhere() -> None:
                with pytest.raises(errors.UsageError, match="another event loop"):
                    await env.step(0)
                with pytest.raises(errors.UsageError, match="another event loop"):
                    async with pool.session():
                        pass

            await asyncio.to_thread(asyncio.run, elsewhere())
            await env.step(0)

    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        for _ in range(2):
            asyncio.run(main(pool))


@pytest.mark.parametrize("then", ["loop", "calls", "drain"])
def test_a_loop_that_ended_leaves_the_pool_to_others(gate: Gate, then: str) -> None:
    """With a step in flight, and with sessions that nobody has left."""

    async def leave(pool: Any) -> None:
        env = await pool.session().__aenter__()
        await env.reset()
        await pool.session().__aenter__()
        await cancelled(await in_step(gate, env))

    async def main(pool: Any) -> None:
        async with pool.session() as one, pool.session() as two:
            await asyncio.gather(one.reset(), two.reset())

    with gated(gate, 2) as pool:
        asyncio.run(leave(pool))
        assert pool.in_flight == [0]
        gate.open(0)
        if then == "loop":
            asyncio.run(main(pool))
        elif then == "calls":
            assert pool.reset()[0].shape == (2, 2)
        else:
            assert pool.drain() == []
            assert pool.in_flight == []
        assert pool.reset()[0].shape == (2, 2)


def test_a_loop_that_stands_still_keeps_its_sessions() -> None:
    loop = asyncio.new_event_loop()

    async def begin(pool: Any) -> Any:
        env = await pool.session().__aenter__()
        await env.reset()
        return env

    async def other(pool: Any) -> None:
        async with pool.session():
            pass

    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        env = loop.run_until_complete(begin(pool))
        with pytest.raises(errors.UsageError, match="another event loop"):
            asyncio.run(other(pool))
        assert len(loop.run_until_complete(env.step(0))) == 5
        loop.run_until_complete(env.__aexit__(None, None, None))
        asyncio.run(other(pool))
        loop.close()


def test_close_tells_everybody_who_waits(gate: Gate, impatient: None) -> None:
    async def main(pool: Any) -> None:
        env = await pool.session().__aenter__()
        await env.reset()
        step = await in_step(gate, env)
        waiting = asyncio.create_task(pool.session().__aenter__())
        await turns()
        pool.close()
        for task in (step, waiting):
            with pytest.raises(errors.ClosedError):
                await task
        with pytest.raises(errors.ClosedError):
            await env.step(np.float32(0.5))
        await env.__aexit__(None, None, None)
        with pytest.raises(errors.ClosedError):
            async with pool.session():
                pass

    asyncio.run(main(gated(gate, 1)))


def test_another_thread_does_not_close_what_a_loop_uses() -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            with pytest.raises(errors.ConcurrentUseError, match="call_soon_threadsafe"):
                await asyncio.to_thread(pool.close)
            await env.step(0)

    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        asyncio.run(main(pool))


@pytest.mark.parametrize("how", ["closed inside", "closed after", "dropped", "in flight"])
@pytest.mark.parametrize("backend", [INLINE, THREAD, TWO], ids=str)
def test_nothing_is_left(backend: Backend, how: str) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env, pool.session():
            await env.reset()
            await env.step(0)
            if how == "in flight":
                task = asyncio.create_task(env.step(0))
                await asyncio.sleep(0)
                task.cancel()
            if how == "closed inside":
                pool.close()

    def run() -> None:
        pool = backend.make("CartPole-v1", num_envs=2)
        asyncio.run(main(pool))
        if how == "closed after":
            pool.close()

    run()  # what Python itself opens once
    before = belongings()
    run()
    assert left_since(before) == []


def test_ctrl_c_in_the_loop_ends_it_and_not_the_pool(gate: Gate) -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            task = await in_step(gate, env)
            os.kill(os.getpid(), signal.SIGINT)
            await task

    async def again(pool: Any) -> None:
        async with pool.session() as env:
            await env.reset()
            await env.step(np.float32(0.5))

    with gated(gate, 2) as pool:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main(pool))
        gate.open(0)
        asyncio.run(again(pool))
        assert pool.reset()[0].shape == (2, 2)


def test_rows_wake_a_loop_that_sleeps() -> None:
    """Native envs on threads, which another thread lets go on: nothing else wakes the loop."""

    async def main(pool: Any, open_one: threading.Event) -> None:
        async with pool.session() as one, pool.session() as two:
            resets = asyncio.gather(one.reset(), two.reset())
            await turns()
            open_one.set()
            await resets
            for _ in range(50):
                steps = asyncio.gather(one.step(0.5), two.step(0.5))
                await turns()
                open_one.set()
                await steps

    with GatedPool(2) as gated_pool:
        opened = threading.Event()
        over = threading.Event()

        def open_gates() -> None:
            while not over.is_set():
                if opened.wait(0.05):
                    opened.clear()
                    gated_pool.open(2)

        join = doing(open_gates)
        try:
            asyncio.run(main(gated_pool.pool, opened))
        finally:
            over.set()
            join()
