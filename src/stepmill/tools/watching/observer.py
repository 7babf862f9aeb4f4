"""Looks at results of a pool now and then, in the thread that uses the pool; the engine counts all of them.

If a browser shows the pool, it asks for pictures of envs that are idle at that moment, since their results have just
come and their next actions have not been sent. The workers draw while the caller goes on.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Container, Sequence
from functools import partial
from typing import Any

from stepmill import _native
from stepmill.errors import summary
from stepmill.hosts.frames import Frame, frame_of
from stepmill.hosts.host import Host
from stepmill.hosts.observing import WatchedPool
from stepmill.system.uninterrupted import try_or
from stepmill.tools.watching.book import Book
from stepmill.tools.watching.control import Control
from stepmill.tools.watching.details import Details, Pictures, details_of
from stepmill.tools.watching.looks import Looks

_LOOK_S = 0.01  # at least between two looks
_UNSEEN_S = 0.25  # the same while no browser shows the page
_SIZE, _PICKED_SIZE = 320, 640  # of pictures, in pixels per side, at most
_MOST_ERRORS = 20
SHARE = 0.05  # of the time, at most, for pictures
PLAYED_SHARE = 0.5  # the same where envs are only played to be seen
TEXT_SHARE = 0.01  # of the calling thread's time, for the texts of envs that users have picked
_BURST_S = 0.05  # of drawing, which may be saved up while nobody looks
_WINDOW_S = 10.0  # over which the share is measured that users see


class Budget:
    """Time for drawing: nothing is drawn before all that was spent is at most a share of the time that has passed.

    The first picture of each worker is not counted: it loads what draws.

    Args:
        now: The time at which it starts, in seconds.
        workers: How many workers draw, for the share of their time.
        limit: The share.
    """

    def __init__(self, now: float, workers: int, limit: float = SHARE) -> None:
        self.limit = limit
        self._workers = workers
        self._credit = 0.0
        self._counted_until = now
        self._spent = 0.0  # by workers
        self._samples: deque[tuple[float, float]] = deque([(now, 0.0)])

    def allows(self, now: float) -> bool:
        """Whether a picture may be drawn now."""
        self._credit = min(self._credit + (now - self._counted_until) * self.limit, _BURST_S)
        self._counted_until = now
        return self._credit >= 0.0

    def spend(self, seconds: float, workers: int = 1) -> None:
        """Counts what one picture took, while that many workers drew at once."""
        self._spent += seconds
        self._credit -= seconds / workers

    def spend_beside(self, seconds: float) -> None:
        """Counts work for pictures that no worker did: it delays the next one."""
        self._credit -= seconds

    def share(self, now: float) -> float:
        """The part of the workers' time that went into pictures lately."""
        if now - self._samples[-1][0] >= 0.5:
            self._samples.append((now, self._spent))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
        since, spent = self._samples[0]
        return (self._spent - spent) / ((now - since) * self._workers) if now > since else 0.0


class Observer:
    """Watches one pool. ``saw`` is for the engine; the attributes are for readers in other threads.

    Attributes:
        book: Returns, rewards, speed.
        looks: Browsers, and what they are shown.
        pictures: Where pictures come from.
        details: By env id, what else is known of envs that users have picked.
        errors: The last failures: when, and their text.
        control: What the page can do to the program that uses the pool; None if that goes its own way.
        limit: The part of the workers' time that pictures may take.
    """

    def __init__(self, pool: WatchedPool, control: Control | None) -> None:
        host: Host = pool.engine.host
        now = time.perf_counter()
        self._engine = weakref.ref(pool.engine)  # the pool ends with its last user, and that is not us
        self._read, self._num_envs = pool.rows, pool.num_envs
        self.control = control
        self._tap = _native.Tap(pool.engine)
        self.book = Book(self._tap, pool.num_envs, now)
        self.looks = Looks(host.crews)
        self.pictures = Pictures.of(host)
        self.details: dict[int, Details] = {}
        self.errors: deque[tuple[float, str]] = deque(maxlen=_MOST_ERRORS)
        self.limit = SHARE if control is None else PLAYED_SHARE
        self._budget = Budget(now, len(host.crews), self.limit)
        self._text_budget = Budget(now, 1, TEXT_SHARE)
        self._budget_lock = threading.Lock()

    # ---- in the thread that uses the pool ----------------------------------------------------

    def start(self) -> None:
        """Sees the pool from now on."""
        self._tap.watch(self.book.native, self.saw)

    def stop(self) -> None:
        """Sees nothing any more."""
        self._tap.watch(None, None)

    def saw(self, result: Any, error: BaseException | None) -> None:
        """Called now and then with a result. Whatever goes wrong here must not harm the run."""
        try_or(lambda: self._see(result, error), self._give_up)

    def _give_up(self, failure: BaseException) -> None:
        self.note_error(f"The page cannot follow the pool any more: {summary(failure)}")
        self.stop()

    def _see(self, result: Any, error: BaseException | None) -> None:
        obs, _, _, _, info = result if self._read is None else self._read(result)
        if error is not None:
            self.note_error(str(error))
        self._look(time.perf_counter(), obs, info)

    def _look(self, now: float, obs: Any, info: dict[str, Any]) -> None:
        self.book.tick(now)
        engine = self._engine()
        if engine is None:
            return
        watched, picked = self.looks.watched(now)
        self.book.native.look_every(0.0 if self._is_paused() else _LOOK_S if watched else _UNSEEN_S)
        ids = info["env_id"]
        idle: Container[int] = range(self._num_envs) if len(ids) == self._num_envs else set(ids.tolist())
        if self._is_paused() or self._text_budget.allows(now):
            start = time.perf_counter()
            for env_id in picked:
                if env_id in idle:
                    self.details[env_id] = details_of(env_id, obs, info)
            self._text_budget.spend(time.perf_counter() - start)
        for env_id in [one for one in self.details if one not in picked]:
            del self.details[env_id]
        if watched:
            self._draw(engine.host, now, watched, picked, idle, (obs, info))

    def look_again(self) -> None:
        """Draws what has come into view while the program that uses the pool waits; that program calls it."""
        engine = self._engine()
        if engine is None or engine.closed:
            return
        now = time.perf_counter()
        watched, picked = self.looks.watched(now)
        in_flight = set(engine.in_flight_ids)
        idle = [env_id for env_id in watched if env_id not in in_flight]
        engine.use(self._draw, engine.host, now, watched, picked, idle, None)

    # ---- pictures ----------------------------------------------------------------------------

    def _draw(
        self,
        host: Host,
        now: float,
        watched: Sequence[int],
        picked: set[int],
        idle: Container[int],
        seen: tuple[Any, dict[str, Any]] | None,
    ) -> None:
        """Draws those whose turn it is, if there is time for that; all of them if the program is paused.

        ``seen``: the observations and infos of the result, if there is one.
        """
        for frame in host.take_frames():
            self._keep(frame)
        if not self.pictures.any or (self.pictures.of_observations and seen is None):
            return
        chosen = [one for one in watched if one in idle and self.looks.is_new(one, self._stamp(one))]
        if not self._is_paused():
            with self._budget_lock:
                chosen = self.looks.next_envs(chosen, picked) if self._budget.allows(now) else []
        for size, some in ((_PICKED_SIZE, picked.intersection(chosen)), (_SIZE, set(chosen) - picked)):
            if self.pictures.of_observations and seen is not None:
                asked = sorted(some)
                frames = [frame_of(one, partial(self.pictures.read, one, *seen), size) for one in asked]
            else:
                asked = host.ask_frames(sorted(some), size)
                frames = []
            for env_id in asked:
                self.looks.ask(env_id, self._stamp(env_id), len(chosen))
            for frame in [*frames, *host.take_frames()]:
                self._keep(frame)

    def _keep(self, frame: Frame) -> None:
        at_once, is_first = self.looks.take(frame, time.perf_counter())
        if not (is_first or self._is_paused()):  # while it is paused, nobody waits for the workers
            with self._budget_lock:
                self._budget.spend(frame.seconds, at_once)

    def _stamp(self, env_id: int) -> tuple[int, int]:
        numbers = self.book.numbers(env_id)
        return numbers.episodes, numbers.step

    def _is_paused(self) -> bool:
        return self.control is not None and self.control.paused

    # ---- for other threads -------------------------------------------------------------------

    def note_error(self, text: str) -> None:
        """Shows a failure on the page."""
        self.errors.append((time.time(), text))

    def share(self, now: float) -> float:
        """The part of the workers' time that pictures took lately."""
        with self._budget_lock:
            return self._budget.share(now)

    def spend_beside(self, seconds: float) -> None:
        """Counts work for pictures that no worker did."""
        with self._budget_lock:
            self._budget.spend_beside(seconds)
