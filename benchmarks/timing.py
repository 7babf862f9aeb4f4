"""How long to measure, beside what the package has for it.

The package's file is loaded alone: importing the package would load stepmill into the process of every contestant.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.alone import load

_timing = load("timing")
Runner = _timing.Runner
interleaved = _timing.interleaved
steps_per_second = _timing.steps_per_second


@dataclass(frozen=True)
class Effort(_timing.Effort):  # type: ignore[misc, name-defined]
    """``repeats`` rounds, ``seconds`` for each contestant in each."""

    quick: bool = False
    device: str = "cpu"  # of networks, where there are any that are worth it

    @property
    def search_s(self) -> float:
        """The time for each trial of a thread count, before the rounds."""
        return float(self.seconds / 2)


@dataclass
class Calls:
    """Calls a function again and again; each makes ``steps`` steps."""

    call: Callable[[], Any]
    steps: int
    close: Callable[[], None] = lambda: None

    def steps_per_second(self, seconds: float) -> float:
        self.call()
        calls, start = 0, time.perf_counter()
        while (now := time.perf_counter()) - start < seconds:
            self.call()
            calls += 1
        return calls * self.steps / (now - start)


def percentiles(times_ns: np.ndarray) -> dict[str, float]:
    return {f"p{p:g}": float(np.percentile(times_ns, p)) for p in (50, 90, 99, 99.9)}
