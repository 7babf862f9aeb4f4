"""Envs whose methods are coroutines: twins of the others, and one that goes wrong in every way a coroutine can."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import gymnasium

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
        return waiting(task) if issubclass(task, gymnasium.Env) else task
    return task if isinstance(task, str) else _building_twins(task)


def _building_twins(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def build_twin(*args: Any, **config: Any) -> Any:
        env = build(*args, **config)
        env.__class__ = waiting(type(env))
        return env

    return build_twin
