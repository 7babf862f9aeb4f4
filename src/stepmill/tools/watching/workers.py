"""How busy the workers of a pool are, from its statistics."""

from __future__ import annotations

import time
from typing import Any

from stepmill import _native

__all__ = ["Workers"]

_EVERY_S = 1.0
_COST = 100  # the statistics of many processes take a while: they are read at most in so small a part of the time


class Workers:
    """Reads the statistics now and then, in the thread that uses the pool."""

    def __init__(self, now: float) -> None:
        self._next = now
        self._since = now
        self._busy: list[float] = []
        self._steps = 0
        self.rows: list[dict[str, Any]] = []
        self.restarts = 0
        self.memory = 0

    def read(self, engine: _native.Engine, now: float) -> None:
        """Reads them, if it is time."""
        if now < self._next:
            return
        stats = engine.stats()
        self._next = now + max(_EVERY_S, _COST * (time.perf_counter() - now))
        passed = now - self._since
        self._since = now
        self.restarts = stats.get("restarts", 0)
        self.memory = stats.get("memory_bytes", 0)
        if "workers" in stats:
            self._read_processes(stats["workers"], passed)
        else:
            self._read_threads(stats, passed)

    def _read_processes(self, workers: list[dict[str, Any]], passed: float) -> None:
        busy = [one["busy_seconds"] for one in workers]
        before = self._busy if len(self._busy) == len(busy) else busy
        self._busy = busy
        self.rows = [
            {
                "name": f"worker {number}",
                "use": _share(now - earlier, passed),
                **{key: one[key] for key in ("pid", "alive", "restarts", "memory_bytes")},
            }
            for number, (one, now, earlier) in enumerate(zip(workers, busy, before, strict=True))
        ]

    def _read_threads(self, stats: dict[str, Any], passed: float) -> None:
        """Threads are not timed one by one: this follows from how long a step takes."""
        hands = stats["threads_started"] + 1  # the caller helps
        busy = (stats["steps"] - self._steps) * stats["step_cost_ns"] * 1e-9 / hands
        first, self._steps = self._steps == 0, stats["steps"]
        name = "the calling thread" if hands == 1 else f"{hands} threads, the calling one included"
        self.rows = [{"name": name, "use": 0.0 if first else _share(busy, passed), "alive": True}]


def _share(busy: float, passed: float) -> float:
    return min(1.0, max(0.0, busy / passed)) if passed > 0 else 0.0
