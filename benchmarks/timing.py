"""How long to measure, beside what the package has for it.

The package's file is loaded alone: importing the package would load stepmill into the process of every contestant.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def percentiles(times_ns: np.ndarray) -> dict[str, float]:
    return {f"p{p:g}": float(np.percentile(times_ns, p)) for p in (50, 90, 99, 99.9)}
