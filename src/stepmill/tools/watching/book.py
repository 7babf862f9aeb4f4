"""What is known of a watched pool: returns and last rewards of every env, how fast it goes, and how that changed.

The engine writes down every result (``cpp/core/watch_book.h``) and counts (``hosts/observing.py``); this reads both.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from stepmill import _native
from stepmill.hosts.observing import Interval, Snapshot, snapshot_of

_TICK_SECONDS = 0.1
_LATELY_SECONDS = 2.0  # over which speeds are counted
_MOST_POINTS = 240


class Rewards(NamedTuple):
    """The last rewards of one env, oldest first, and which of them ended an episode. None: not a finite number."""

    values: list[float | None]
    ends: list[int]


class EnvNumbers(NamedTuple):
    """Where one env is."""

    episode_return: float | None  # so far; None: the episode began before anybody watched
    step: int
    episodes: int
    last_return: float | None
    failures: int


class Book:
    """Read by many threads."""

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

    def numbers(self, env_id: int) -> EnvNumbers:
        """Where one env is."""
        so_far, step, episodes, last, failures = self.native.numbers(env_id)
        return EnvNumbers(_finite(so_far), step, episodes, _finite(last), failures)

    def rewards(self, env_ids: Sequence[int], most: int) -> dict[int, Rewards]:
        """The last rewards of some envs, at most that many of each."""
        found = self.native.rewards(env_ids, most)
        finite = [Rewards([_finite(one) for one in values], ends) for values, ends in found]
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
