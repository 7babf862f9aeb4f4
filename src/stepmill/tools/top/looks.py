"""One look at a process: everything that its pools have counted until then."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from stepmill import _native
from stepmill.errors import UsageError
from stepmill.tools.top.processes import command_of, counters_of, cpu_seconds, resident_bytes
from stepmill.tools.top.shared import SharedLook, read_shared
from stepmill.tools.top.words import Record, read_counters

__all__ = ["PoolLook", "ProcessLook", "look_at"]


@dataclass(frozen=True)
class PoolLook:
    """A pool at one moment. ``ticks`` is the clock of its words, read just after them."""

    pool: Record
    caller: Record
    workers: list[Record]
    shared: SharedLook
    ticks: int
    worker_rss: list[int | None]


@dataclass(frozen=True)
class ProcessLook:
    """A process at one moment."""

    pid: int
    at: float
    command: str
    rss: int | None
    cpu_s: float | None
    hidden_pools: int
    pools: dict[int, PoolLook]  # by their serial numbers, in the order in which they were made


def look_at(pid: int) -> ProcessLook:
    """Looks at the pools of a process.

    Raises:
        UsageError: It is gone, has no pools, or cannot be looked at.
    """
    descriptor = counters_of(pid)
    try:
        counters = read_counters(descriptor)
    except ValueError as error:
        raise UsageError(f"process {pid}: {error}") from None
    finally:
        os.close(descriptor)
    ticks = _native.read_ticks()
    pids_are_ours = counters.header["pid"] == pid  # in a container they may be anybody's here
    pools = {}
    for pool, caller, workers in sorted(counters.pools, key=lambda one: one[0]["serial"]):
        pids = [one["pid"] if pids_are_ours else 0 for one in workers]
        memory = [resident_bytes(one) if one else None for one in pids]
        pools[pool["serial"]] = PoolLook(pool, caller, workers, read_shared(pid, pool), ticks, memory)
    return ProcessLook(
        pid,
        time.monotonic(),
        command_of(pid),
        resident_bytes(pid),
        cpu_seconds(pid),
        counters.header["hidden"],
        pools,
    )
