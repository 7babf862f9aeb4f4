"""Sessions: one env of a pool for one task of an asyncio program.

The way of one action: ``Session.step`` puts it down in the engine, which checks it, and returns a future. At the end of
this turn of the loop ``Sessions`` starts what all tasks have put down, and goes to sleep with the loop. A row wakes the
loop through a descriptor, one call takes all rows that are ready, and each goes to the future of its env. Nothing runs
beside the loop: no thread, and no timer but one that looks now and then, in case what tells of rows was overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

from stepmill import _native
from stepmill.errors import ClosedError, ConcurrentUseError, EnvError, InFlightError, SessionTimeoutError, UsageError
from stepmill.hosts.host import Host
from stepmill.values.trees import Tree
from stepmill.views.single_rows import Row, RowSplitter, batch_of_one

# How often to look without being woken: worker processes may have overwritten what wakes us, and slow envs are named.
_LOOK_EVERY_S = 0.5

_OTHER_LOOP = (
    "the sessions of this pool belong to another event loop, or to one of another thread: a pool serves one loop at a "
    "time. Use one pool per loop"
)

_Loop = asyncio.AbstractEventLoop
_Future = asyncio.Future[Any]


class EpisodeStage(Enum):
    """Where the episode of an env stands, as far as its session is concerned."""

    BEFORE_RESET = auto()
    LIVE = auto()
    ENDED = auto()
    FAILED = auto()


class LentEnv:
    """An env of the pool."""

    __slots__ = ("begun", "env_id", "failure", "future", "in_flight", "is_taken", "stage")

    def __init__(self, env_id: int) -> None:
        self.env_id = env_id
        self.is_taken = False  # by a session
        self.in_flight = False  # put down, started, or on its way back
        self.future: _Future | None = None  # of the last that was asked
        self.stage = EpisodeStage.BEFORE_RESET
        self.failure: EnvError | None = None  # the last one
        # With autoreset="same_step", what the next episode shows: it began inside the step that ended the last one.
        self.begun: tuple[Any, dict[str, Any]] | None = None


class Sessions:
    """All sessions of a pool: who has which env, and who waits for what.

    The pool is theirs from the first session on, until another call needs it when all of them have ended: the engine
    then calls ``make_way``.
    """

    def __init__(self, engine: _native.Engine, autoreset: str) -> None:
        self._engine = engine
        self._calls = _native.EngineSessions(engine)
        host: Host = engine.host
        self._host = host
        self._wraps: Tree | None = host.action.tree if host.action.object_spaces else None
        self._split = RowSplitter(host.observation, host.num_players, host.player_kinds)
        self._begins_at_end = autoreset == "same_step"
        self._envs: list[LentEnv] = []
        self._free: deque[LentEnv] = deque()
        self._waiting: deque[_Future] = deque()  # for an env, in the order in which they came
        self._open = 0  # sessions that have an env
        self._in_flight = 0  # envs
        self._loop: _Loop | None = None  # while there is anything to wait for
        self._thread = 0  # the one of the loop
        self._event = -1  # what the loop polls
        self._is_due = False  # the loop will call `_turn`
        self._look: asyncio.TimerHandle | None = None
        # What came, until all of it has been handed over: nothing is lost if Ctrl-C raises in between.
        self._came: tuple[Any, EnvError | None] | None = None
        self._rows: list[tuple[int, Row]] = []
        self._failures: dict[int, EnvError] = {}

    # ---- who has which env -------------------------------------------------------------------

    async def take(self, timeout: float | None) -> LentEnv:
        """An env that nobody has, or the next one that is given back."""
        loop = asyncio.get_running_loop()
        self._begin(loop)
        if self._free:
            return self._taken(self._free.popleft())
        return await self._next_free(loop, timeout)

    def _taken(self, lent: LentEnv) -> LentEnv:
        lent.is_taken = True
        lent.stage = EpisodeStage.BEFORE_RESET
        lent.future = None
        self._open += 1
        return lent

    async def _next_free(self, loop: _Loop, timeout: float | None) -> LentEnv:
        future: _Future = loop.create_future()
        self._waiting.append(future)
        try:
            async with asyncio.timeout(timeout):
                lent: LentEnv = await future
            return lent
        except TimeoutError:
            self._leave_queue(future)
            raise SessionTimeoutError(
                f"session(timeout={timeout:g}): expected one of the {len(self._envs)} envs of the pool to become free "
                "within that time, but sessions have all of them: make the pool with more num_envs, or leave sessions "
                "earlier"
            ) from None
        except BaseException:
            self._leave_queue(future)
            raise

    def _leave_queue(self, future: _Future) -> None:
        if future.done() and not future.cancelled() and future.exception() is None:
            self.give_back(future.result())  # it came too late
        elif future in self._waiting:
            self._waiting.remove(future)
        self._rest()

    def give_back(self, lent: LentEnv) -> None:
        """Its session has ended. What is in flight is cancelled, and the env is free when its row has come."""
        if not lent.is_taken:
            return  # it is of a loop that has ended, and another one has the pool
        lent.is_taken = False
        self._open -= 1
        if not lent.in_flight:
            self._release(lent)
        elif not self._engine.closed:
            _fail(lent.future, UsageError(f"the session of env {lent.env_id} was left while its step was in flight"))
            self._calls.cancel(lent.env_id)
        self._rest()

    def _release(self, lent: LentEnv) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(self._taken(lent))
                return
        self._free.append(lent)

    # ---- the loop ----------------------------------------------------------------------------

    def check_loop(self) -> None:
        """Raises if this is not the loop that the sessions belong to."""
        if asyncio.get_running_loop() is not self._loop:
            self._engine.check_usable()
            raise UsageError(_OTHER_LOOP)

    def _begin(self, loop: _Loop) -> None:
        """Takes the pool, and makes the loop wait for its rows."""
        if self._loop is loop:
            return
        if self._is_busy:
            self._refuse_other_loop()
        if not self._calls.has_begun:
            self._calls.begin(self)
            self._envs = [LentEnv(env_id) for env_id in range(self._calls.num_envs)]
            self._host.policy.raises_all = True
            self._host.serve_sessions(self._calls.event)
        if len(self._free) != len(self._envs):  # Ctrl-C may have come while one was handed over
            self._free = deque(self._envs)
        self._came, self._rows = None, []  # or while a row was: it has arrived, as nothing is in flight
        self._plug(loop)

    def _refuse_other_loop(self) -> None:
        """Raises if another loop is still of use to sessions; else gives up what they have left."""
        if not self._is_abandoned:
            raise UsageError(f"session: {_OTHER_LOOP}")
        self._abandon()

    @property
    def _is_busy(self) -> bool:
        return bool(self._open or self._in_flight or self._waiting)

    @property
    def _is_abandoned(self) -> bool:
        """Whether nobody is left who could wait: the loop is closed, or stands still and has no session."""
        loop = self._loop
        return loop is None or loop.is_closed() or not (loop.is_running() or self._open or self._waiting)

    def _abandon(self) -> None:
        """Drops what sessions of a loop that has ended have left. Waits for what is in flight."""
        self._unplug()
        for lent in self._envs:
            lent.is_taken = False
        self._waiting.clear()
        self._free.clear()
        self._open = self._in_flight = 0
        self._came, self._rows = None, []
        self._end()

    def _end(self) -> None:
        """Gives the pool back to ``send`` and ``recv``."""
        if self._calls.has_begun:
            self._calls.end()
            self._host.policy.raises_all = False
            self._host.serve_sessions(None)

    def make_way(self, call: str) -> None:
        """Called before any other call that needs all envs."""
        if self._is_busy and not self._is_abandoned and (self._open or self._waiting):
            count = self._open + len(self._waiting)
            are_open = "1 session of this pool is open" if count == 1 else f"{count} sessions of this pool are open"
            raise UsageError(
                f"{call}: {are_open}, and sessions have its envs to themselves: leave them first, or use another pool"
            )
        self._abandon()

    def _plug(self, loop: _Loop) -> None:
        self._unplug()
        self._loop, self._thread, self._event = loop, threading.get_ident(), self._calls.event
        loop.add_reader(self._event, self._rung)

    def _unplug(self) -> None:
        loop, self._loop = self._loop, None
        self._is_due = False
        if self._look is not None:
            self._look.cancel()
            self._look = None
        if loop is not None and not loop.is_closed():
            loop.remove_reader(self._event)

    def _rest(self) -> None:
        """Leaves the loop alone if there is nothing to wait for."""
        if not self._is_busy and self._loop is not None:
            self._unplug()

    # ---- what is asked -----------------------------------------------------------------------

    def put_action(self, lent: LentEnv, action: Any) -> _Future:
        """The result comes with the future."""
        batch = None
        if self._wraps is not None:
            batch = action
            with contextlib.suppress(LookupError, TypeError, ValueError):  # then the engine says what is wrong with it
                batch = batch_of_one(self._wraps, action)
        future = self._expect(lent)
        try:
            self._calls.put_action(lent.env_id, action, batch)
        except BaseException:
            self._forget(lent)
            raise
        return future

    def put_reset(self, lent: LentEnv, seed: int | None, options: dict[str, Any] | None) -> _Future:
        """The same for a reset."""
        future = self._expect(lent)
        try:
            self._calls.put_reset(lent.env_id, seed, options)
        except BaseException:
            self._forget(lent)
            raise
        lent.begun = None
        return future

    def _expect(self, lent: LentEnv) -> _Future:
        loop = self._loop
        assert loop is not None
        if self._rows or self._came is not None:  # of an exchange that was interrupted, before this was asked
            self._hand_over()
        future = lent.future = loop.create_future()
        lent.in_flight = True
        self._in_flight += 1
        self._call_soon(loop)
        if self._look is None:
            self._look = loop.call_later(_LOOK_EVERY_S, self._look_around)
        return future

    def _forget(self, lent: LentEnv) -> None:
        """It was refused; or it was not, and Ctrl-C came right afterwards."""
        if not self._calls.is_asked(lent.env_id):
            lent.in_flight = False
            self._in_flight -= 1

    async def settle(self, lent: LentEnv) -> None:
        """Waits for what a cancelled call has left in flight."""
        if lent.future is not None and not lent.future.done():
            raise InFlightError(f"env {lent.env_id} is in flight: another task of this session waits for its result")
        assert self._loop is not None
        lent.future = self._loop.create_future()
        with contextlib.suppress(EnvError):  # of a call that nobody waits for any more
            await lent.future

    # ---- what comes --------------------------------------------------------------------------

    def _call_soon(self, loop: _Loop) -> None:
        if not self._is_due:
            self._is_due = True
            loop.call_soon(self._turn)

    def _turn(self) -> None:
        """After all tasks have had their turn: starts what they have asked."""
        self._is_due = False
        self._exchange()

    def _rung(self) -> None:
        self._exchange(rung=True)

    def _look_around(self) -> None:
        self._look = None
        self._exchange(doubtful=True)

    def _exchange(self, rung: bool = False, doubtful: bool = False) -> None:
        loop = self._loop
        if loop is None:  # it was unplugged in this turn of the loop
            return
        try:
            self._hand_over()
            _native.call_into(self, "_came", self._calls.exchange, rung, doubtful)
            self._hand_over()
            if not self._calls.watch():  # more is to be done: other tasks first
                self._call_soon(loop)
        except Exception as error:
            self._fail_all(error)
        except BaseException:  # Ctrl-C: the loop may go on, to let its tasks end
            self._call_soon(loop)
            raise
        self._rest()
        if self._in_flight and self._look is None:
            self._look = loop.call_later(_LOOK_EVERY_S, self._look_around)

    def _hand_over(self) -> None:
        if self._came is not None:
            batch, error = self._came
            failures = [] if error is None else error.errors
            self._failures = {one.env_id: one for one in failures if one.env_id is not None}
            self._rows = self._split(batch)
            self._came = None
        while self._rows:
            env_id, row = self._rows[-1]
            self._take_row(self._envs[env_id], row, self._failures.get(env_id))
            self._rows.pop()

    def _take_row(self, lent: LentEnv, row: Row, failure: EnvError | None) -> None:
        """May be called again for the same row, if it was interrupted."""
        if failure is not None:
            failure.batch = row
            lent.failure, lent.stage = failure, EpisodeStage.FAILED
        elif row[2] or row[3]:
            lent.stage = EpisodeStage.ENDED
            if self._begins_at_end and lent.begun is None:
                row, lent.begun = _parted(row)
        else:
            lent.stage = EpisodeStage.LIVE
        future = lent.future
        if lent.in_flight:
            lent.in_flight = False
            self._in_flight -= 1
            if not lent.is_taken:
                self._release(lent)
        if future is None or future.done():  # its session was left, or the call was cancelled
            return
        if failure is None:
            future.set_result(row)
        else:
            future.set_exception(failure)

    # ---- ending ------------------------------------------------------------------------------

    def close(self, close_engine: Callable[[], None]) -> None:
        """Closes the pool, and tells everybody who waits."""
        loop = self._loop
        if loop is not None and loop.is_running() and threading.get_ident() != self._thread:
            raise ConcurrentUseError(
                "close: the sessions of this pool belong to an event loop of another thread, which has to close it: "
                "loop.call_soon_threadsafe(pool.close)"
            )
        self._unplug()
        try:
            close_engine()
        finally:
            if self._engine.closed:
                self._fail_all(ClosedError("the pool was closed while this session waited"))
                self._waiting.clear()
                self._in_flight = 0
            elif loop is not None:  # it was refused
                self._plug(loop)

    def _fail_all(self, error: Exception) -> None:
        for future in (*self._waiting, *(lent.future for lent in self._envs)):
            _fail(future, error)


def _fail(future: _Future | None, error: Exception) -> None:
    if future is not None and not future.done() and not future.get_loop().is_closed():
        future.set_exception(error)
        future.exception()  # nobody may be left who waits for it: then asyncio need not say so


def _parted(row: Row) -> tuple[Row, tuple[Any, dict[str, Any]]]:
    """A step that ended an episode and began the next one: what the last one showed, and what the next one shows."""
    begun, reward, terminated, truncated, info = row
    last = dict(info.pop("final_info", {}))
    observation = info.pop("final_obs")
    last |= {key: info.pop(key) for key in ("episode_return", "episode_length", "abnormal") if key in info}
    return (observation, reward, terminated, truncated, last), (begun, info)
