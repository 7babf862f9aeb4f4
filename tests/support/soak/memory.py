"""Whether memory stays flat: the same round of pools, again and again, must not take more of it each time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from support.processes import descendants, resident_bytes
from support.soak.processes import pss

# What the mean of a round may grow by, from the second round (the first one warms up) to the last. In five minutes
# some 1,000 processes die and 500,000 rows are handed out, four fifths of that in these rounds: to leak 8 kB a death,
# or 15 bytes a row, is too much. Means of rounds differ by 3 MB as it is: pools need more where more is done to them.
PARENT_MB = 6.0
# A worker is killed before it could leak much. This is about what it is born with: its template forks hundreds.
WORKER_MB = 2.0
# All of them together: a process that outlives its successor takes some 9 MB, and their number varies by one or two.
ALL_MB = 20.0


@dataclass(frozen=True)
class Measure:
    """What was measured: the mean of each round, in megabytes, and by how much it may grow."""

    name: str
    means: Sequence[float]
    most: float

    @property
    def growth(self) -> float:
        return growth(self.means)


class Memory:
    """Samples, by the round they were taken in."""

    def __init__(self) -> None:
        self._rounds: list[list[tuple[float, float, float]]] = []

    def sample(self, number: int) -> None:
        """Takes one, in the round of that number."""
        while len(self._rounds) <= number:
            self._rounds.append([])
        # The share of each process in what is shared (PSS): of workers, templates and the server.
        shares = [share for share in map(pss, descendants()) if share]
        if shares:
            self._rounds[number].append((resident_bytes() / 1e6, fmean(shares) / 1e6, sum(shares) / 1e6))

    @property
    def measures(self) -> list[Measure]:
        columns = zip(*(map(fmean, zip(*samples, strict=True)) for samples in self._rounds if samples), strict=True)
        means = list(columns) or [(), (), ()]
        return [
            Measure("this process", means[0], PARENT_MB),
            Measure("a worker process", means[1], WORKER_MB),
            Measure("all worker processes", means[2], ALL_MB),
        ]

    @property
    def now(self) -> float:
        """Of this process, the last sample."""
        return next((samples[-1][0] for samples in reversed(self._rounds) if samples), 0.0)

    def problems(self) -> list[str]:
        """What is not flat."""
        return [
            f"the memory of {one.name} grew by {one.growth:.1f} MB, more than {one.most:g}; rounds: {one.means}"
            for one in self.measures
            if one.growth > one.most
        ]


def growth(means: Sequence[float]) -> float:
    """Megabytes from the second round to the last; two rounds tell nothing."""
    return means[-1] - means[1] if len(means) > 2 else 0.0
