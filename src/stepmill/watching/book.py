"""What is known of a watched pool: the returns and the last rewards of every env, and how fast it goes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stepmill.watching.history import History

__all__ = ["Book", "EnvNumbers", "Rewards"]

_LOG_ROWS = 1 << 18  # at least; the last rewards of all envs together
_RECENT_EPISODES = 100
_RATE_S = 2.0  # over which steps per second are counted
_END, _RESET = 1, 2  # marks of rows


class Rewards(NamedTuple):
    """The last rewards of one env, oldest first, and which of them ended an episode."""

    values: list[float]
    ends: list[int]


class EnvNumbers(NamedTuple):
    """Where one env is."""

    episode_return: float | None  # so far; None: the episode began before anybody watched
    step: int
    episodes: int
    last_return: float | None
    failures: int


class Book:
    """Counts what a pool returns. Filled by the thread that uses the pool, read by others."""

    def __init__(self, num_envs: int, num_players: int, now: float) -> None:
        self._num_envs = num_envs
        self._has_players = num_players > 1
        self._lock = threading.Lock()
        self._all_ids: np.ndarray | None = None  # of a batch of all envs in order; the engine reuses the array
        self._running = np.full(num_envs, np.nan)
        self._elapsed = np.zeros(num_envs, np.int32)
        self._episodes = np.zeros(num_envs, np.int64)
        self._last_return = np.full(num_envs, np.nan)
        self._failures = np.zeros(num_envs, np.int64)
        rows = max(_LOG_ROWS, 4 * num_envs)
        self._log_env = np.zeros(rows, np.int32)
        self._log_reward = np.zeros(rows, np.float32)
        self._log_mark = np.zeros(rows, np.uint8)
        self._next_row, self._rows = 0, 0
        self._recent: deque[tuple[float, int]] = deque(maxlen=_RECENT_EPISODES)
        self._ticks: deque[tuple[float, int]] = deque([(now, 0)], maxlen=256)
        self._new_returns: list[float] = []  # since the last point of the history
        self.history = History(now)
        self.steps = 0
        self.episodes = 0

    # ---- in the thread that uses the pool ----------------------------------------------------

    def add(self, reward: np.ndarray, ended: np.ndarray, info: Mapping[str, Any]) -> None:
        """Counts the rows of a batch."""
        ids, elapsed = info["env_id"], info["elapsed_step"]
        if self._has_players:
            reward = self._by_env(reward, info["players"]["env_id"])[ids]
        with self._lock:
            if self._is_all(ids):
                self._running += reward
                self._elapsed[:] = elapsed
            else:
                self._running[ids] += reward
                self._elapsed[ids] = elapsed
            marks = self._log(ids, reward, ended)
            if not elapsed.all():
                fresh = elapsed == 0
                self._running[ids[fresh]] = 0.0
                if len(marks) == len(fresh):
                    marks[fresh & ~ended] = _RESET
            if "episode_return" in info:
                self._end_episodes(ids, ended, info)
            if "abnormal" in info:
                self._failures[ids[np.asarray(info["abnormal"], bool)]] += 1
            self.steps += len(ids)

    def _by_env(self, reward: np.ndarray, owners: np.ndarray) -> np.ndarray:
        """The sum of the players' rewards, for every env."""
        return np.bincount(owners, reward, self._num_envs)

    def _is_all(self, ids: np.ndarray) -> bool:
        if ids is self._all_ids:
            return True
        if len(ids) != self._num_envs or (ids != np.arange(self._num_envs)).any():
            return False
        if not ids.flags.writeable:
            self._all_ids = ids
        return True

    def _log(self, ids: np.ndarray, reward: np.ndarray, ended: np.ndarray) -> np.ndarray:
        """Adds rows to the log, and returns their marks."""
        room = len(self._log_env) - self._next_row
        if len(ids) > room:  # at the end of the log: what does not fit goes to its beginning
            self._log(ids[:room], reward[:room], ended[:room])
            return self._log(ids[room:], reward[room:], ended[room:])
        at = slice(self._next_row, self._next_row + len(ids))
        self._log_env[at], self._log_reward[at], self._log_mark[at] = ids, reward, ended
        self._next_row = at.stop % len(self._log_env)
        self._rows = min(self._rows + len(ids), len(self._log_env))
        return self._log_mark[at]

    def _end_episodes(self, ids: np.ndarray, ended: np.ndarray, info: Mapping[str, Any]) -> None:
        who = ids[ended]
        returns, lengths = info["episode_return"][ended], info["episode_length"][ended]
        self._last_return[who] = returns
        self._episodes[who] += 1
        self.episodes += len(who)
        self._recent.extend(zip(returns.tolist(), lengths.tolist(), strict=True))
        self._new_returns += returns[-_RECENT_EPISODES:].tolist()
        del self._new_returns[:-_RECENT_EPISODES]

    def tick(self, now: float) -> None:
        """Notes how far it is; to be called a few times per second."""
        with self._lock:
            if now - self._ticks[-1][0] >= 0.1:
                self._ticks.append((now, self.steps))
            if self.history.wants(now):
                self.history.add(now, self._rate(now), self._new_returns)
                self._new_returns = []

    # ---- for readers -------------------------------------------------------------------------

    def steps_per_second(self, now: float) -> float:
        """Lately; 0 if the pool has not been used for a while."""
        with self._lock:
            return self._rate(now)

    def _rate(self, now: float) -> float:
        since, steps = self._ticks[0]
        for tick in reversed(self._ticks):
            if now - tick[0] >= _RATE_S:
                since, steps = tick
                break
        return (self.steps - steps) / (now - since) if now > since else 0.0

    def recent_episodes(self) -> list[tuple[float, int]]:
        """Returns and lengths of the last episodes of all envs."""
        with self._lock:
            return list(self._recent)

    def numbers(self, env_id: int) -> EnvNumbers:
        """Where one env is."""
        with self._lock:
            return EnvNumbers(
                _known(self._running[env_id]),
                int(self._elapsed[env_id]),
                int(self._episodes[env_id]),
                _known(self._last_return[env_id]),
                int(self._failures[env_id]),
            )

    def rewards(self, env_ids: Sequence[int], most: int) -> dict[int, Rewards]:
        """The last rewards of some envs, at most so many of each."""
        envs, rewards, marks = self._tail(most * self._num_envs * 2)
        wanted = np.zeros(self._num_envs, np.bool_)
        wanted[list(env_ids)] = True
        rows = np.flatnonzero(wanted[envs] & (marks != _RESET))
        rows = rows[np.argsort(envs[rows], kind="stable")]
        starts = np.searchsorted(envs[rows], [*env_ids, *(one + 1 for one in env_ids)])
        out = {}
        for env_id, start, stop in zip(
            env_ids, starts[: len(env_ids)].tolist(), starts[len(env_ids) :].tolist(), strict=True
        ):
            own = rows[max(start, stop - most) : stop]
            out[env_id] = Rewards(
                [round(float(one), 6) for one in rewards[own]], np.flatnonzero(marks[own] == _END).tolist()
            )
        return out

    def _tail(self, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The newest rows of the log, oldest first."""
        with self._lock:
            count = min(most, self._rows)
            at = np.arange(self._next_row - count, self._next_row) % len(self._log_env)
            return self._log_env[at], self._log_reward[at], self._log_mark[at]


def _known(number: Any) -> float | None:
    return float(number) if np.isfinite(number) else None
