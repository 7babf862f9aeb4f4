"""What envs whose methods are coroutines do with asyncio, in the event loop of a worker."""

from __future__ import annotations

import asyncio
import ctypes
import inspect
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill

pytestmark = pytest.mark.usefixtures("deadline", "server")


class Busy(gymnasium.Env[np.ndarray, int]):
    """Its action is the number of what it does with asyncio."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Discrete(8)  # type: ignore[assignment]

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # type: ignore[override]
        return np.zeros(1, np.float32), {}

    async def step(self, action: int) -> Any:  # type: ignore[override]
        does = [self.nothing, self.groups, self.limits, self.threads, self.processes, self.looks, self.crash_in_a_task]
        return np.zeros(1, np.float32), await does[int(action)](), False, False, {}

    async def nothing(self) -> float:
        return 1.0

    async def groups(self) -> float:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._later((3, 4)))
        first, second = await asyncio.gather(self._later(1), self._later(StopIteration(2)))
        assert isinstance(second, StopIteration)
        return float(first + sum(task.result()))

    async def limits(self) -> float:
        for waiting in (asyncio.wait_for(asyncio.Event().wait(), 0.001), self._timed_out()):
            try:
                await waiting
            except TimeoutError:
                continue
            return 0.0
        task = asyncio.create_task(asyncio.Event().wait())
        await asyncio.sleep(0)
        task.cancel()
        (found,) = await asyncio.gather(task, return_exceptions=True)
        return float(isinstance(found, asyncio.CancelledError))

    async def threads(self) -> float:
        return await asyncio.to_thread(float, 5)

    async def processes(self) -> float:
        child = await asyncio.create_subprocess_exec("echo", "6", stdout=asyncio.subprocess.PIPE)
        out, _ = await child.communicate()
        return float(out)

    async def looks(self) -> float:
        """As libraries look at tasks: whether one has begun, and where it is."""
        task, own = asyncio.create_task(asyncio.Event().wait()), asyncio.current_task()
        assert own is not None
        states = [inspect.getcoroutinestate(task.get_coro()), inspect.getcoroutinestate(own.get_coro())]  # type: ignore[arg-type]
        await asyncio.sleep(0)
        states.append(inspect.getcoroutinestate(task.get_coro()))  # type: ignore[arg-type]
        (frame,) = task.get_stack()
        task.cancel()
        assert states == [inspect.CORO_CREATED, inspect.CORO_RUNNING, inspect.CORO_SUSPENDED], states
        return float(frame.f_code.co_name == "wait")

    async def crash_in_a_task(self) -> float:
        async def crash() -> None:
            await asyncio.sleep(0)
            ctypes.string_at(0)

        await asyncio.create_task(crash())
        return 0.0

    async def _later(self, value: Any) -> Any:
        await asyncio.sleep(0.001)
        return value

    async def _timed_out(self) -> None:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()


def test_asyncio_is_all_there() -> None:
    with stepmill.make(Busy, num_envs=6, num_workers=1, backend="process") as pool:
        pool.reset()
        for _ in range(3):
            _, reward, *_ = pool.step(np.arange(6))
            assert reward.tolist() == [1.0, 8.0, 1.0, 5.0, 6.0, 1.0]


def test_a_crash_in_a_task_names_the_env_that_has_started_it(capfd: pytest.CaptureFixture[str]) -> None:
    with stepmill.make(Busy, num_envs=4, num_workers=2, backend="process", on_error="restart") as pool:
        pool.reset()
        info = pool.step([0, 0, 0, 6])[4]
        assert info["abnormal"][3]
    assert "stepmill: env 3 crashed in worker 1 (pid " in capfd.readouterr().err
