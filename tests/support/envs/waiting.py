"""Envs whose methods are coroutines: twins of the others, and one that goes wrong in every way a coroutine can."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import itertools
import os
import signal
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np

from stepmill.envs import BaseEnv
from support.envs import ProbeTwin
from support.waiting import tell_gate, wait_at_gate

# ---- twins ---------------------------------------------------------------------------------------


async def take_turns(count: int) -> None:
    """Lets all others go first, so often."""
    for _ in range(count):
        await asyncio.sleep(0)


@functools.cache
def waiting(kind: Any) -> Any:
    """The twin of a class of envs: it does the same in coroutines, which wait before and after."""

    class Twin(kind):
        async def reset(self, **arguments: Any) -> Any:
            await take_turns(2)
            result = super().reset(**arguments)
            await take_turns(1)
            return result

        async def step(self, action: Any) -> Any:
            await take_turns(2)
            result = super().step(action)
            await take_turns(1)
            return result

        async def close(self) -> None:
            await take_turns(1)
            super().close()

    Twin.__name__, Twin.__qualname__ = (
        kind.__name__,
        f"waiting({kind.__qualname__})",
    )  # errors and configs tell the name
    return Twin


def waiting_task(task: Any) -> Any:
    """What ``make`` is told, so that its envs are the twins; an id stays what it is."""
    if isinstance(task, list):
        return [waiting_task(one) for one in task]
    if isinstance(task, type):
        return waiting(task) if issubclass(task, gymnasium.Env | BaseEnv) else task
    return task if isinstance(task, str) else _building_twins(task)


def _building_twins(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def build_twin(*args: Any, **config: Any) -> Any:
        env = build(*args, **config)
        if isinstance(env, gymnasium.Env | BaseEnv):
            env.__class__ = waiting(type(env))
        return env

    return build_twin


# ---- mishaps -------------------------------------------------------------------------------------


class Grave(BaseException):
    """Not an ``Exception``."""


async def pass_gate(env: Sufferer) -> None:
    """Waits until the test opens the gate, and lets others go on meanwhile."""
    with contextlib.suppress(FileNotFoundError):
        opened = os.open(f"{env.folder}/open-{env.env_id}", os.O_RDONLY | os.O_NONBLOCK)
        loop, is_open = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(opened, is_open.set)
        try:
            await is_open.wait()
            os.read(opened, 1)
        finally:
            loop.remove_reader(opened)
            os.close(opened)


async def raise_later(error: BaseException) -> NoReturn:
    await take_turns(2)
    raise error


async def raise_in_finally() -> None:
    try:
        await take_turns(1)
    finally:
        raise KeyError("in finally")


async def wait_forever() -> None:
    await asyncio.get_running_loop().create_future()


async def wait_forever_and_tidy_up(env: Sufferer) -> None:
    try:
        await wait_forever()
    finally:
        await take_turns(3)
        env.leave("tidy")


async def swallow_the_cancellation() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await wait_forever()


async def ignore_all_cancellations() -> NoReturn:
    while True:
        await swallow_the_cancellation()


async def cancel_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await take_turns(1)


async def have_a_task_exit(env: Sufferer, *, is_awaited: bool) -> None:
    task = asyncio.create_task(raise_later(SystemExit("a task")))
    if is_awaited:
        await task
    else:
        await take_turns(6)
        env.leave("went on")


async def leave_tasks_behind(env: Sufferer) -> None:
    async def linger(name: str) -> None:
        try:
            await wait_forever()
        finally:
            env.leave(name)

    env.tasks = [
        asyncio.create_task(linger("cancelled")),
        asyncio.create_task(linger("cancelled though of its own"), context=contextvars.Context()),
    ]
    await take_turns(2)


async def stop_the_process() -> None:
    signal.raise_signal(signal.SIGSTOP)


async def block(env: Sufferer) -> None:
    wait_at_gate(env.folder, env.env_id)


class Misbehaved:
    """Can be awaited, in a way."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __await__(self) -> Any:
        if self.way == "raises":
            raise KeyError("awaited")
        if self.way == "no iterator":
            return 7
        return iter([None, "nothing to wait for"] if self.way == "yields nonsense" else itertools.repeat(None))


# By name: what an env suffers. All are functions of the env.
MISHAPS: dict[str, Callable[[Sufferer], Awaitable[Any]]] = {
    "raise": lambda env: raise_later(KeyError("broken")),
    "raise in finally": lambda env: raise_in_finally(),
    "BaseException": lambda env: raise_later(Grave("broken")),
    "sys.exit": lambda env: raise_later(SystemExit("broken")),
    "KeyboardInterrupt": lambda env: raise_later(KeyboardInterrupt("broken")),
    "StopIteration": lambda env: raise_later(StopIteration("broken")),
    "CancelledError": lambda env: raise_later(asyncio.CancelledError("broken")),
    "cancels itself": lambda env: cancel_itself(),
    "a task exits": lambda env: have_a_task_exit(env, is_awaited=True),
    "a task exits alone": lambda env: have_a_task_exit(env, is_awaited=False),
    "await raises": lambda env: Misbehaved("raises"),
    "await is no iterator": lambda env: Misbehaved("no iterator"),
    "yields nonsense": lambda env: Misbehaved("yields nonsense"),
    "cannot be cancelled": lambda env: Misbehaved("cannot be cancelled"),
    "forever": lambda env: wait_forever(),
    "forever, tidily": wait_forever_and_tidy_up,
    "swallows": lambda env: swallow_the_cancellation(),
    "deaf": lambda env: ignore_all_cancellations(),
    "gate": pass_gate,
    "blocks": block,
    "stopped": lambda env: stop_the_process(),
    "tasks": leave_tasks_behind,
}

# Exceptions: the worker lives on. What the row's error says of each, and what its cause is.
RAISED: dict[str, tuple[str, type[BaseException]]] = {
    "raise": ("KeyError: 'broken'", KeyError),
    "raise in finally": ("KeyError: 'in finally'", KeyError),
    "BaseException": ("Grave: broken", Grave),
    "sys.exit": ("SystemExit: broken", SystemExit),
    "KeyboardInterrupt": ("KeyboardInterrupt: broken", KeyboardInterrupt),
    "StopIteration": ("coroutine raised StopIteration", RuntimeError),
    "CancelledError": ("CancelledError: broken", asyncio.CancelledError),
    "cancels itself": ("CancelledError", asyncio.CancelledError),
    "a task exits": ("SystemExit: a task", SystemExit),
    "await raises": ("KeyError: 'awaited'", KeyError),
    "await is no iterator": ("TypeError", TypeError),
    "yields nonsense": ("RuntimeError: Task got bad yield", RuntimeError),
}


class Sufferer(ProbeTwin):
    """A probe in coroutines, with its mishap in the calls ``at`` of ``where``, which count from 1 in each life."""

    def __init__(
        self,
        mishap: str = "",
        where: str = "step",
        at: Collection[int] = (1,),
        folder: Any = "",
        length: int = 1000,
        env_id: int = 0,
    ) -> None:
        super().__init__(length)
        self.env_id, self.folder = env_id, str(folder)
        self.tasks: list[asyncio.Task[None]] = []
        self._mishap, self._where, self._at = mishap, where, at
        self._count = 0

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        await self._suffer("reset")
        return super().reset(seed=seed, options=options)

    async def step(self, action: np.ndarray) -> Any:
        await self._suffer("step")
        return super().step(action)

    async def close(self) -> None:
        await self._suffer("close")
        self.leave("closed")

    async def visit(self, value: Any = None) -> tuple[int, Any]:
        """For ``call``: how many steps there were, and what was passed."""
        await self._suffer("visit")
        return self._steps, value

    def count_tasks(self) -> int:
        """In its worker's event loop."""
        return len(asyncio.all_tasks())

    def leave(self, name: str) -> None:
        """Leaves a file."""
        if self.folder:
            Path(self.folder, f"{name} {self.env_id}").touch()

    async def _suffer(self, where: str) -> None:
        if where != self._where:
            return
        self._count += 1
        if self._count in self._at and self._mishap:
            tell_gate(self.folder, self.env_id)
            await MISHAPS[self._mishap](self)
