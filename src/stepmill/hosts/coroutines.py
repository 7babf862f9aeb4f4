"""Envs whose methods are coroutines: the tasks that they start, and, in the calling thread, a loop that runs them."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from stepmill.errors import UsageError
from stepmill.system.warn_once import warn_once

# Whose code is running. Tasks that an env starts inherit it.
ENV_ID: contextvars.ContextVar[int] = contextvars.ContextVar("stepmill_env_id")

GRACE_S = 1.0  # how long a coroutine may take to end when it is cancelled


# From an env and the coroutine of a task that it starts to the one that the task runs.
Follow = Callable[[int, Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]


class EnvTasks:
    """The tasks that envs have started in an event loop. They end with the episode."""

    def __init__(self, loop: asyncio.AbstractEventLoop, follow: Follow = lambda _, coroutine: coroutine) -> None:
        self._follow = follow
        self._tasks: dict[int, set[asyncio.Task[Any]]] = {}
        self._contexts: dict[int, contextvars.Context] = {}
        loop.set_task_factory(self._make_task)  # type: ignore[arg-type]  # typeshed's has other options in each version

    def context_of(self, env_id: int) -> contextvars.Context:
        """The context in which all code of an env runs: what it sets there stays set."""
        context = self._contexts.get(env_id)
        if context is None:
            context = self._contexts[env_id] = contextvars.copy_context()
            context.run(ENV_ID.set, env_id)
        return context

    def end_episode(self, env_id: int) -> bool:
        """Cancels what an env has left behind, and names it, once for each kind of task. Whether there was any."""
        left = [task for task in self._tasks.pop(env_id, ()) if task.cancel()]
        for task in left:
            warn_once(
                "an env has started a task that was still there when its episode was over, and was cancelled: "
                f"{_name_of(task)}. A task that is to live longer is started in a context of its own: "
                "asyncio.create_task(..., context=contextvars.Context())"
            )
        return bool(left)

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any
    ) -> asyncio.Task[Any]:
        context = options.get("context")
        env_id = ENV_ID.get(None) if context is None else context.get(ENV_ID)
        if env_id is None or not asyncio.iscoroutine(coroutine):
            return asyncio.Task(coroutine, loop=loop, **options)
        task: asyncio.Task[Any] = asyncio.Task(self._follow(env_id, coroutine), loop=loop, **options)
        tasks = self._tasks.setdefault(env_id, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task


class OwnLoop:
    """Runs coroutines of envs in the calling thread, one after the other, in a loop of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks = EnvTasks(self._loop)

    @staticmethod
    def check_usable() -> None:
        """Raises if the calling thread is inside another event loop."""
        if asyncio._get_running_loop() is not None:
            raise UsageError(
                "backend='inline' runs envs whose methods are coroutines in an event loop of its own, and this thread "
                "is inside another one: use backend='process', or call the pool from a thread without a loop"
            )

    def run(self, env_id: int, awaitable: Awaitable[Any]) -> Any:
        """What comes of an awaitable of an env."""
        task = asyncio.Task(_await(awaitable), loop=self._loop, context=self._tasks.context_of(env_id))
        try:
            self._drive(task)
        except BaseException:
            if not task.done():  # Ctrl-C, or a signal handler has raised
                task.cancel()
                self._drive(asyncio.wait([task], timeout=GRACE_S))
            if task.done() and not task.cancelled():
                task.exception()  # looked at: otherwise asyncio would show it
            raise
        return task.result()

    def end_episode(self, env_id: int) -> None:
        """See ``EnvTasks``. What was cancelled ends now."""
        if self._tasks.end_episode(env_id) and not self._loop.is_running():
            self._drive(asyncio.sleep(0))

    def close(self) -> None:
        """Ends the loop, and all tasks in it."""
        if self._loop.is_closed():
            return
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        if left:
            self._drive(asyncio.wait(left, timeout=GRACE_S))
        self._drive(self._loop.shutdown_asyncgens())
        self._drive(self._loop.shutdown_default_executor())
        self._loop.close()

    def _drive(self, what: Coroutine[Any, Any, Any] | asyncio.Task[Any]) -> None:
        """Runs the loop until this is done. What was interrupted may have left behind a call that stops the loop."""
        task = what if isinstance(what, asyncio.Task) else asyncio.Task(what, loop=self._loop)
        task.add_done_callback(_stop_loop)
        while not task.done():
            self._loop.run_forever()


def _stop_loop(task: asyncio.Task[Any]) -> None:
    task.get_loop().stop()


async def _await(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


def _name_of(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return repr(task) if code is None else str(code.co_qualname)
