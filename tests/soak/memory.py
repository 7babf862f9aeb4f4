"""Whether memory stays flat: the same round of pools, again and again, must not take more of it each time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from statistics import fmean

from soak.processes import descendants, pss, rss

__all__ = ["PARENT_MB", "PROCESS_MB", "Memory", "growth"]

# What the mean of a round may grow by, from the second round (the first one warms up) to the last. In five minutes
# some 1,500 processes die and 600,000 rows are handed out: to leak 4 kB a death, or 10 bytes a row, is too much. Means
# of rounds differ by 2 MB as it is: what a pool needs depends on what is done to it.
PARENT_MB = 6.0
# A worker is killed before it could leak much. This is about what it is born with: its template forks hundreds.
PROCESS_MB = 2.0


class Memory:
    """Samples, by the round they were taken in."""

    def __init__(self) -> None:
        self._parent: list[list[float]] = []
        self._processes: list[list[float]] = []

    def sample(self, number: int) -> None:
        """Takes one, in the round of that number."""
        while len(self._parent) <= number:
            self._parent.append([])
            self._processes.append([])
        self._parent[number].append(rss() / 1e6)
        shares = [share for share in map(pss, descendants(os.getpid())) if share]
        if shares:
            self._processes[number].append(fmean(shares) / 1e6)

    @property
    def parent(self) -> list[float]:
        """Megabytes of this process, the mean of each round."""
        return _means(self._parent)

    @property
    def processes(self) -> list[float]:
        """Megabytes of a process of the pools (workers, templates, the server): its share of what is shared, too."""
        return _means(self._processes)

    def problems(self) -> list[str]:
        """What is not flat."""
        found = []
        for name, means, most in (("this process", self.parent, PARENT_MB), ("a worker", self.processes, PROCESS_MB)):
            if growth(means) > most:
                shown = ", ".join(f"{mean:.1f}" for mean in means)
                found.append(f"the memory of {name} grew by more than {most:g} MB; means of the rounds: {shown}")
        return found


def growth(means: Sequence[float]) -> float:
    """Megabytes from the second round to the last; two rounds tell nothing."""
    return means[-1] - means[1] if len(means) > 2 else 0.0


def _means(rounds: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(samples) for samples in rounds if samples]
