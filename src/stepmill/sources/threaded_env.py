"""Envs that block while they wait, each in a thread of its own: for an event loop, their methods are coroutines."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from stepmill.errors import ConfigError
from stepmill.registry.description import EnvDescription, has_coroutines
from stepmill.registry.factories import close_env
from stepmill.system.guardian import exit_if_forked


class ThreadedEnv:
    """An env that lives in a thread: all of its code runs there, from the constructor to ``close``.

    Args:
        build: Builds the env.
        name: The name of the thread.
    """

    def __init__(self, build: Callable[[], Any], name: str) -> None:
        self._thread = _Thread(name)
        try:
            self.env = self._thread.run(build)
            if has_coroutines(self.env):
                raise ConfigError(
                    f"threads=True is for envs that block, and the reset or step of {type(self.env).__name__} is a "
                    "coroutine: leave it out"
                )
            described = self._thread.run(partial(EnvDescription.of, self.env))
        except BaseException:
            self._thread.end()
            raise
        self.observation_space, self.action_space = described.observation_space, described.action_space
        self.num_players, self.player_kinds = described.num_players, described.player_kinds
        self.players_vary, self.info_space = described.players_vary, described.info_space
        self.metadata, self.render_mode = described.metadata, described.render_mode
        self.presence = b""  # of players: as the last reset or step has left it

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return await self.ask(lambda env: self._noting_presence(env.reset(seed=seed, options=options)))

    async def step(self, action: Any) -> Any:
        return await self.ask(lambda env: self._noting_presence(env.step(action)))

    async def render(self) -> Any:
        return await self.ask(lambda env: env.render())

    async def close(self) -> None:
        try:
            await self.ask(close_env)
        finally:
            self._thread.end()

    async def ask(self, function: Callable[[Any], Any]) -> Any:
        """``function(env)``, called in the thread of the env."""
        return await self._thread.call(partial(function, self.env))

    def _noting_presence(self, result: Any) -> Any:
        if self.players_vary:
            self.presence = self.env.presence
        return result


class _Thread:
    """Calls functions, one after another."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # A daemon: one that is stuck does not keep its process from ending.
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def run(self, function: Callable[[], Any]) -> Any:
        """What the function returns. The caller waits."""
        result: queue.SimpleQueue[_Result] = queue.SimpleQueue()
        self._calls.put(lambda: result.put(_Result(function)))
        return result.get().take()

    async def call(self, function: Callable[[], Any]) -> Any:
        """What the function returns. Cancelled, it leaves the thread at it: what comes next waits until it is done."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[_Result] = loop.create_future()
        context = contextvars.copy_context()

        def tell(came: _Result) -> None:
            if not result.done():
                result.set_result(came)

        def work() -> None:
            came = _Result(partial(context.run, function))
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(tell, came)

        self._calls.put(work)
        return (await result).take()

    def end(self) -> None:
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            del call  # while it waits, it holds nothing of the last one


class _Result:
    """What came of a call: a value or an exception."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        try:
            self._value = function()
        except BaseException as error:  # SystemExit too: it is for the env's caller
            self._error = error
        exit_if_forked()

    def take(self) -> Any:
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # no cycle with its traceback
        return self._value
