"""Whether memory stays flat: the same round of pools, again and again, must not take more of it each time."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from soak.processes import descendants, pss, rss

__all__ = ["Memory"]

MB = 1e6

# What the mean of a round may grow by, from the second round (the first one warms up) to the last. Five minutes are
# some 600 dead processes and millions of rows: a leak of 10 kB a death, or of 2 bytes a row, is more than this.
PARENT_MB = 6.0
# The processes are young, killed again and again, so this is about what every new one inherits; their number at
# the time of a sample varies by two or three, of about 3 MB each.
WORKERS_MB = 12.0
_LEAST_SAMPLES = 3


@dataclass
class _Round:
    parent: list[float] = field(default_factory=list)
    workers: list[float] = field(default_factory=list)


class Memory:
    """Samples, by the round they were taken in."""

    def __init__(self) -> None:
        self._rounds: list[_Round] = []

    def sample(self, index: int) -> None:
        """Takes one, in round ``index``."""
        while len(self._rounds) <= index:
            self._rounds.append(_Round())
        self._rounds[index].parent.append(rss() / MB)
        self._rounds[index].workers.append(sum(map(pss, descendants(os.getpid()))) / MB)

    @property
    def parent(self) -> list[float]:
        """Megabytes of this process, the mean of each whole round."""
        return self._means([one.parent for one in self._whole])

    @property
    def workers(self) -> list[float]:
        """Megabytes of all processes of the pools together."""
        return self._means([one.workers for one in self._whole])

    def problems(self) -> list[str]:
        """What is not flat."""
        found = []
        for name, means, most in (("parent", self.parent, PARENT_MB), ("workers", self.workers, WORKERS_MB)):
            if growth(means) > most:
                shown = ", ".join(f"{mean:.1f}" for mean in means)
                found.append(f"the memory of the {name} grew by more than {most:g} MB; means of the rounds: {shown}")
        return found

    @property
    def _whole(self) -> Sequence[_Round]:
        """The rounds that came to their end."""
        return self._rounds[:-1] if len(self._rounds) > 1 else self._rounds

    @staticmethod
    def _means(rounds: Sequence[Sequence[float]]) -> list[float]:
        return [fmean(samples) for samples in rounds if len(samples) >= _LEAST_SAMPLES]


def growth(means: Sequence[float]) -> float:
    """Megabytes from the second round to the last."""
    return means[-1] - means[1] if len(means) > 2 else 0.0
