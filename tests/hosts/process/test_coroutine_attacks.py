"""Envs whose methods are coroutines, and that meddle with their event loop or are interrupted in it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import EnvError
from support.envs import ProbeTwin
from support.processes import worker_pids

pytestmark = pytest.mark.usefixtures("deadline", "server")


# ---- tasks of an episode -------------------------------------------------------------------------


class Listening(ProbeTwin):
    """Has a task that reset begins, as a connection has. Its rewards say whether that is still there."""

    listener: asyncio.Task[Any] | None = None

    async def reset(self, **arguments: Any) -> Any:
        result = super().reset(**arguments)
        self.listener = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        return result

    async def step(self, action: Any) -> Any:
        observation, _, terminated, truncated, info = super().step(action)
        assert self.listener is not None
        await asyncio.sleep(0)  # it ends here if it was cancelled
        listens = not self.listener.done()
        if terminated or truncated:
            self.listener.cancel()
        return observation, float(listens), terminated, truncated, info


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_a_task_that_a_reset_begins_lives_as_long_as_its_episode(mode: str, backend: str) -> None:
    with stepmill.make(Listening, num_envs=1, length=3, autoreset=mode, backend=backend) as pool:
        pool.reset()
        ended = False
        for _ in range(12):
            _, reward, terminated, truncated, _ = pool.step(np.zeros(1, np.float32))
            if not (ended and mode == "next_step"):
                assert reward[0] == 1.0
            ended = bool(terminated[0] or truncated[0])


async def ignore_all_cancellations(has_begun: asyncio.Event) -> None:
    while True:
        has_begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


class Stubborn(ProbeTwin):
    """Has a task that does not end."""

    def __init__(self, env_id: int, folder: Path) -> None:
        super().__init__()
        self.closed_mark = folder / str(env_id)

    async def reset(self, **arguments: Any) -> Any:
        has_begun = asyncio.Event()
        self.task = asyncio.create_task(ignore_all_cancellations(has_begun))
        await has_begun.wait()
        return super().reset(**arguments)

    async def close(self) -> None:
        self.closed_mark.touch()


def test_a_task_that_ignores_its_end_keeps_no_env_from_being_closed(tmp_path: Path) -> None:
    with stepmill.make(Stubborn, num_envs=3, num_workers=1, folder=tmp_path, backend="process") as pool:
        pool.reset()
    assert sorted(mark.name for mark in tmp_path.iterdir()) == ["0", "1", "2"]


# ---- the loop itself -----------------------------------------------------------------------------


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


def its_own_coroutine() -> Any:
    task = asyncio.current_task()
    assert task is not None
    return task.get_coro()


async def close_itself() -> None:
    its_own_coroutine().close()
    await asyncio.sleep(0)


async def go_on_from_inside() -> None:
    with pytest.raises(ValueError, match="already executing"):
        its_own_coroutine().send(None)
    with pytest.raises(ValueError, match="already executing"):
        its_own_coroutine().throw(KeyError())
    await asyncio.sleep(0)


class Meddler(ProbeTwin):
    def __init__(self, meddle: Callable[[], Any] | None = None, **config: Any) -> None:
        super().__init__(**config)
        self.meddle = meddle

    async def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)

    async def step(self, action: Any) -> Any:
        if self.meddle is not None:
            await self.meddle()
        return super().step(action)


@pytest.mark.parametrize("meddle", [stop_the_loop, close_itself, go_on_from_inside])
def test_an_env_that_meddles_with_its_loop_costs_nobody_anything(meddle: Any) -> None:
    configs = [{"meddle": meddle}, {}]
    with stepmill.make(Meddler, num_envs=2, num_workers=1, env_config=configs, backend="process") as pool:
        pool.reset()
        pids = worker_pids(pool)
        for _ in range(3):
            *_, info = pool.step(np.zeros(2, np.float32))
            assert "abnormal" not in info
        assert worker_pids(pool) == pids


async def close_what_wakes_the_loop() -> None:
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):
            if "eventfd" in os.readlink(f"/proc/self/fd/{descriptor}"):
                os.close(descriptor)


def test_a_worker_that_can_no_longer_be_woken_is_replaced() -> None:
    config = {"meddle": close_what_wakes_the_loop}
    with stepmill.make(Meddler, num_envs=1, env_config=[config], backend="process", on_error="restart") as pool:
        pool.reset()
        pids = worker_pids(pool)
        pool.step(np.zeros(1, np.float32))
        *_, info = pool.step(np.zeros(1, np.float32))
        assert info["abnormal"].all()
        *_, info = pool.step(np.zeros(1, np.float32))
        assert "abnormal" not in info
        assert worker_pids(pool) != pids


# ---- Ctrl-C in the calling thread ------------------------------------------------------------------


class Interrupted(ProbeTwin):
    """Ctrl-C comes in a step whose action is 1, between the end of its coroutine and what the loop does about that."""

    async def reset(self, **arguments: Any) -> Any:
        await asyncio.sleep(0)
        return super().reset(**arguments)

    async def step(self, action: Any) -> Any:
        if action > 0:
            asyncio.get_running_loop().call_soon(self.interrupt)
        return super().step(action)

    @staticmethod
    def interrupt() -> None:
        raise KeyboardInterrupt


def test_an_interrupt_fails_one_row_and_not_the_next() -> None:
    with stepmill.make(Interrupted, num_envs=1, backend="inline", autoreset="disabled") as pool:
        pool.reset()
        with pytest.raises(KeyboardInterrupt):
            pool.step(np.ones(1, np.float32))
        with pytest.raises(EnvError) as failed:
            pool.recv()
        assert isinstance(failed.value.__cause__, KeyboardInterrupt)
        pool.reset()
        for _ in range(3):
            *_, info = pool.step(np.zeros(1, np.float32))
            assert "abnormal" not in info


class Raising(ProbeTwin):
    async def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)

    async def close(self) -> None:
        raise KeyboardInterrupt


def test_asyncio_does_not_say_that_nobody_was_told_of_an_interrupt(caplog: pytest.LogCaptureFixture) -> None:
    pool = stepmill.make(Raising, num_envs=1, backend="inline")
    with contextlib.suppress(KeyboardInterrupt):
        pool.close()
    pool.close()
    gc.collect()
    assert not caplog.records
