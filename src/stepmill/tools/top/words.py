"""The words of a counter file, by their names. The native module has the list of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stepmill import _native
from stepmill.tools.top.processes import printable

__all__ = ["Counters", "Record", "read_counters"]


class Record:
    """Words of a pool or of a worker: ``record["steps"]``, or ``record.many("ticks")`` where there are several."""

    def __init__(self, names: Sequence[tuple[str, int]], words: bytes) -> None:
        values = np.frombuffer(words, np.uint64)
        self._values: dict[str, np.ndarray] = {}
        at = 0
        for name, count in names:
            self._values[name] = values[at : at + count]
            at += count

    def __getitem__(self, name: str) -> int:
        return int(self._values[name][0])

    def many(self, name: str) -> list[int]:
        return [int(one) for one in self._values[name]]

    def text(self, name: str) -> str:
        return printable(self._values[name].tobytes().partition(b"\0")[0])


@dataclass(frozen=True)
class Counters:
    """What a process shows: for each pool its own words, the caller's and those of its workers."""

    header: Record
    pools: list[tuple[Record, Record, list[Record]]]


def read_counters(descriptor: int) -> Counters:
    """Reads a counter file. Raises ValueError, in words, if it is none."""
    header, pools = _native.read_pools(descriptor)
    return Counters(
        Record(_native.HEADER_WORDS, header),
        [
            (
                Record(_native.POOL_WORDS, pool),
                Record(_native.WORKER_WORDS, caller),
                [Record(_native.WORKER_WORDS, one) for one in workers],
            )
            for pool, caller, workers in pools
        ],
    )
