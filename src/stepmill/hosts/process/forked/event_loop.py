"""The loop of a worker whose envs wait for something: many of them are at work at once, each in a task of its own.

It takes envs that have something to do (``Worker.take`` in cpp/bindings/hosts/worker_object.cpp), makes a task of each
``Turn``, and cancels those that are late. Everything else about an action is C++, as in workers without a loop.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import os
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from stepmill import _native
from stepmill.errors import EnvTimeoutError
from stepmill.hosts.coroutines import ENV_ID, GRACE_S, EnvTasks
from stepmill.hosts.process.remote_error import describe
from stepmill.registry.factories import close_env

_STACK_LINES = 50
_KEPT_PER_ENV = 4  # objects, about, that live as long as a step waits


class EventLoop:
    """Runs the envs of a worker until the pool stops it.

    ``bell`` is the descriptor that the pool writes to when there is something to do. ``limits`` has the seconds that a
    ``"step"`` (a ``"call"`` too) and a ``"reset"`` may take, if they are limited.
    """

    worker: _native.Worker

    def __init__(self, num_envs: int, bell: int, limits: dict[str, float]) -> None:
        _collect_less_often(_KEPT_PER_ENV * num_envs)
        self._loop = _new_loop()
        self._tasks = EnvTasks(self._loop, lambda env_id, coroutine: self.worker.follow(env_id, coroutine))
        self._bell = bell
        self._names: dict[int, str] = {}
        self._looks = False  # it is due already
        self._failure: BaseException | None = None
        deadlines = {setting: _Deadlines(self._loop, setting, limit) for setting, limit in limits.items()}
        self._deadlines = {phase: deadlines[s] for phase, s in _SETTINGS.items() if s in deadlines}
        # What the worker calls: when a turn begins to wait for something, and when an env's episode is over.
        self.waiting: Callable[[_native.Turn], None] | None = self._limit if deadlines else None
        self.episode_over = self._tasks.end_episode

    def run(self) -> None:
        """Serves until told to stop."""
        self._loop.add_reader(self._bell, self._hear)
        self._loop.call_soon(self._look)
        self.worker.announce()
        while not self.worker.told_to_stop and self._failure is None:  # an env may stop the loop, too
            self._run_until_stopped()
        self._loop.remove_reader(self._bell)
        if self._failure is not None:
            raise self._failure

    def close_envs(self, envs: Sequence[Any], first_env: int) -> list[tuple[int, bytes]]:
        """Ends all that is going on, and closes all envs at once. Returns (env id, exception) for each that raised."""
        failed: list[tuple[int, bytes]] = []

        async def close(env_id: int, env: Any) -> None:
            try:
                closing = close_env(env)
                if asyncio.iscoroutine(closing) or asyncio.isfuture(closing):
                    await closing
            except BaseException as error:  # it may be anything: the other envs must be closed too
                failed.append((env_id, describe(error)))

        async def close_all() -> None:
            await self._end_tasks()
            contexts = self._tasks.context_of
            closing = [
                asyncio.Task(close(env_id, env), loop=self._loop, context=contexts(env_id))
                for env_id, env in enumerate(envs, first_env)
            ]
            await asyncio.gather(*closing)
            await self._end_tasks()

        task = self._loop.create_task(close_all())
        task.add_done_callback(lambda _: self._loop.stop())
        while not task.done():  # a last look may stop it, too
            self._run_until_stopped()
        with contextlib.suppress(Exception):
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        return sorted(failed)

    @staticmethod
    def current_env() -> int | None:
        """The env whose code is running, or that has started the task that is."""
        return ENV_ID.get(None)

    def look(self) -> None:
        """Looks for something to do, soon."""
        if not self._looks:
            self._looks = True
            self._loop.call_soon(self._look)

    def broken(self, error: BaseException) -> None:
        """Ends the worker: it can no longer be trusted."""
        self._failure = error
        self._loop.stop()

    def failed_call(self, error: BaseException) -> bytes:
        """The answer to a call that came to nothing."""
        return pickle.dumps((False, describe(error)))

    # ---- what there is to do -----------------------------------------------------------------

    def _hear(self) -> None:
        try:
            os.read(self._bell, 8)
        except BlockingIOError:
            pass
        except OSError as error:  # an env has closed it: nothing would be heard, and the loop never sleep
            return self.broken(error)
        self._look()

    def _look(self) -> None:
        self._looks = False
        worker = self.worker
        try:
            worker.rise()
            while not worker.told_to_stop:
                for turn in worker.cancelled():
                    turn.task.cancel()
                while (taken := worker.take()) is not None:
                    self._begin(taken)
                if worker.doze():
                    return
            self._loop.stop()
        except BaseException as error:
            self.broken(error)

    def _begin(self, turn: _native.Turn) -> None:
        env_id = turn.env_id
        name = self._names.get(env_id)
        if name is None:
            name = self._names[env_id] = f"env {env_id}"
        turn.task = asyncio.Task(turn, loop=self._loop, name=name, context=self._tasks.context_of(env_id))

    def _limit(self, turn: _native.Turn) -> None:
        if (deadlines := self._deadlines.get(turn.phase)) is not None:
            deadlines.add(turn)

    # ---- the end -----------------------------------------------------------------------------

    def _run_until_stopped(self) -> None:
        while True:
            try:
                return self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as error:
                # asyncio lets these out of a task that an env has started. It is no reason to end the others.
                traceback.print_exception(error)

    async def _end_tasks(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:  # one that ignores it keeps no env from being closed
            await asyncio.wait(left, timeout=GRACE_S)


# ---- deadlines -----------------------------------------------------------------------------------

_SETTINGS = {"step": "step_timeout", "call": "step_timeout", "reset": "reset_timeout"}  # by phase


class _Deadlines:
    """Cancels the turns that are late. All have the same limit, so the first that began is the first to be late."""

    def __init__(self, loop: asyncio.AbstractEventLoop, setting: str, limit: float) -> None:
        self._loop, self._setting, self._limit = loop, setting, limit
        self._queue: collections.deque[tuple[float, int, _native.Turn]] = collections.deque()
        self._enough = 1024  # entries: then those that are over are taken out
        self._timer: asyncio.TimerHandle | None = None

    def add(self, turn: _native.Turn) -> None:
        self._queue.append((self._loop.time() + self._limit, turn.number, turn))
        if len(self._queue) > self._enough:
            self._queue = collections.deque(one for one in self._queue if _is_under_way(one))
            self._enough = 2 * len(self._queue) + 1024
        if self._timer is None:
            self._timer = self._loop.call_at(self._queue[0][0], self._end_late)

    def _end_late(self) -> None:
        now = self._loop.time()
        while self._queue and (self._queue[0][0] <= now or not _is_under_way(self._queue[0])):
            late = self._queue.popleft()
            if _is_under_way(late):
                self._end(late[2])
        self._timer = self._loop.call_at(self._queue[0][0], self._end_late) if self._queue else None

    def _end(self, turn: _native.Turn) -> None:
        stack = "".join(traceback.StackSummary.extract(_frames_of(turn.awaited)).format()[-_STACK_LINES:])
        where = f". It was here:\n{stack.rstrip()}" if stack else ""
        text = f"it ran longer than {self._setting}={self._limit:g} s{where}"
        turn.fail_with(EnvTimeoutError(text, env_id=turn.env_id, phase=turn.phase))
        turn.task.cancel()


def _is_under_way(entry: tuple[float, int, _native.Turn]) -> bool:
    _, number, turn = entry
    return turn.number == number


def _frames_of(awaited: Any) -> Iterator[tuple[FrameType, int]]:
    """Where a coroutine waits, from the outside to the inside."""
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            return
        yield frame, frame.f_lineno
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


def _collect_less_often(objects: int) -> None:
    """Thousands of tasks wait, and live: to look through them as often as usual takes a sixth of the time."""
    first, *others = gc.get_threshold()
    if 0 < first < objects:
        gc.set_threshold(objects, *others)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
