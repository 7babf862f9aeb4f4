"""What is known of a watched pool: the returns and the last rewards of every env, and how fast it goes.

The engine writes down every result (``cpp/core/watch_book.h``); this reads it, and notes how it changes.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from stepmill import _native
from stepmill.tools.watching.history import History

__all__ = ["Book", "EnvNumbers", "Rewards"]

_TICK_S = 0.1
_RATE_S = 2.0  # over which steps per second are counted


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

    def __init__(self, num_envs: int, now: float) -> None:
        self.native = _native.WatchBook(num_envs)
        self.history = History(now)
        self._lock = threading.Lock()
        self._ticks: deque[tuple[float, int]] = deque([(now, 0)], maxlen=64)

    @property
    def steps(self) -> int:
        """Of all envs, since somebody watches."""
        return self.native.steps

    @property
    def episodes(self) -> int:
        """That have ended since somebody watches."""
        return self.native.episodes

    def tick(self, now: float) -> None:
        """Notes how far it is; to be called a few times per second."""
        with self._lock:
            if now - self._ticks[-1][0] >= _TICK_S:
                self._ticks.append((now, self.native.steps))
            if self.history.wants(now):
                total, count = self.native.take_returns()
                self.history.add(now, self._rate(now), total / count if count else None)

    def steps_per_second(self, now: float) -> float:
        """Lately; 0 if the pool has not been used for a while."""
        with self._lock:
            return self._rate(now)

    def _rate(self, now: float) -> float:
        old = [tick for tick in self._ticks if now - tick[0] >= _RATE_S]
        since, steps = old[-1] if old else self._ticks[0]
        return (self.native.steps - steps) / (now - since) if now > since else 0.0

    def recent_episodes(self) -> list[tuple[float, int]]:
        """Returns and lengths of the last episodes of all envs; those whose return is a finite number."""
        return [one for one in self.native.recent() if math.isfinite(one[0])]

    def numbers(self, env_id: int) -> EnvNumbers:
        """Where one env is."""
        so_far, step, episodes, last, failures = self.native.numbers(env_id)
        return EnvNumbers(_finite(so_far), step, episodes, _finite(last), failures)

    def rewards(self, env_ids: Sequence[int], most: int) -> dict[int, Rewards]:
        """The last rewards of some envs, at most so many of each."""
        found = self.native.rewards(env_ids, most)
        finite = [Rewards([_finite(one) for one in values], ends) for values, ends in found]
        return dict(zip(env_ids, finite, strict=True))


def _finite(number: float) -> float | None:
    return round(number, 6) if math.isfinite(number) else None
