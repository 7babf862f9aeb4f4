"""Looks at results of a pool now and then, in the thread that uses the pool; the engine counts all of them.

If a browser shows the pool, it asks for pictures of envs that are idle at that moment, since their results have just
come and their next actions have not been sent. The workers draw while the caller goes on.
"""

from __future__ import annotations

import math
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
from stepmill.hosts.observing import Interval, Snapshot, WatchedPool, snapshot_of
from stepmill.system.uninterrupted import try_or
from stepmill.tools.watching.control import Control
from stepmill.tools.watching.details import Pictures, details_of
from stepmill.tools.watching.looks import PLAYED_SHARE, SHARE, TEXT_SHARE, Budget, Looks

_LOOK_S = 0.01  # at least between two looks
_UNSEEN_S = 0.25  # the same while no browser shows the page
_SIZE, _PICKED_SIZE = 320, 640  # of pictures, in pixels per side, at most
_MOST_ERRORS = 20


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
        self.details: dict[int, dict[str, Any]] = {}
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
        _, step, episodes, _, _ = self.book.native.numbers(env_id)
        return episodes, step

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


# ---- what is known of the pool --------------------------------------------------------------------

_TICK_SECONDS = 0.1
_LATELY_SECONDS = 2.0  # over which speeds are counted
_MOST_POINTS = 240


class Book:
    """Returns and last rewards of every env, how fast the pool goes, and how that changed. Read by many threads.

    The engine writes down every result (``cpp/core/watch_book.h``) and counts (``hosts/observing.py``).
    """

    def __init__(self, tap: _native.Tap, num_envs: int, now: float) -> None:
        self.native = _native.WatchBook(num_envs)
        self.history = History(now)
        self._tap = tap
        self._lock = threading.Lock()
        self._ticked = now
        self._seen = deque([snapshot_of(tap, times=False)], maxlen=64)

    def tick(self, now: float) -> None:
        """Notes how far the pool is, if it is time for that."""
        if now - self._ticked >= _TICK_SECONDS:
            self.look(now)

    def look(self, now: float) -> tuple[Snapshot, Interval]:
        """Where the pool is, and what it did lately."""
        with self._lock:
            snapshot = snapshot_of(self._tap, times=False)
            older = sum(snapshot.age_seconds - one.age_seconds >= _LATELY_SECONDS for one in self._seen)
            lately = Interval(self._seen[max(0, older - 1)], snapshot)
            if now - self._ticked >= _TICK_SECONDS:
                self._ticked = now
                self._seen.append(snapshot)
            if self.history.wants(now):
                total, count = self.native.take_returns()
                self.history.add(now, lately.per_second("steps"), total / count if count else None)
            return snapshot, lately

    def recent_episodes(self) -> list[tuple[float, int]]:
        """Returns and lengths of the last episodes of all envs; those whose return is a finite number."""
        return [one for one in self.native.recent() if math.isfinite(one[0])]

    def numbers(self, env_id: int) -> dict[str, Any]:
        """Where one env is. It has no return if its episode began before anybody watched."""
        so_far, step, episodes, last, failures = self.native.numbers(env_id)
        numbers = {"return": _finite(so_far), "step": step, "episodes": episodes}
        return {**numbers, "last_return": _finite(last), "failures": failures}

    def rewards(self, env_ids: Sequence[int], most: int) -> dict[int, tuple[list[float | None], list[int]]]:
        """The last rewards of some envs, at most that many of each, oldest first, and which of them ended an episode.

        None: it is not a finite number.
        """
        found = self.native.rewards(env_ids, most)
        finite = [([_finite(one) for one in values], ends) for values, ends in found]
        return dict(zip(env_ids, finite, strict=True))


def _finite(number: float) -> float | None:
    return round(number, 6) if math.isfinite(number) else None


class History:
    """How a run went, from its beginning: points at equal distances.

    When there are too many, neighbours are merged, and the distance doubles.
    """

    def __init__(self, now: float) -> None:
        self._start = self._last = now
        self._distance = 1.0  # seconds
        self._points: list[tuple[float, float, float | None]] = []

    def wants(self, now: float) -> bool:
        """Whether it is time for the next point."""
        return now - self._last >= self._distance

    def add(self, now: float, rate: float, mean_return: float | None) -> None:
        """Adds a point: steps per second, and the mean of the returns since the last one, if there are any."""
        self._last = now
        self._points.append((now - self._start, rate, mean_return))
        if len(self._points) > _MOST_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [_merged(*pair) for pair in pairs]
            self._distance *= 2

    def columns(self) -> dict[str, list[float | None]]:
        """The points, oldest first: seconds since the beginning, steps per second, mean returns."""
        points = self._points[:]
        return {
            "seconds": [round(one[0], 1) for one in points],
            "rate": [round(one[1], 1) for one in points],
            "returns": [None if one[2] is None else round(one[2], 4) for one in points],
        }


def _merged(
    first: tuple[float, float, float | None], second: tuple[float, float, float | None]
) -> tuple[float, float, float | None]:
    returns = [one for one in (first[2], second[2]) if one is not None]
    return second[0], (first[1] + second[1]) / 2, sum(returns) / len(returns) if returns else None
