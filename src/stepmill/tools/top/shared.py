"""What worker processes count, in the memory that they share with their pool.

They have no part in the counter file of their pool's process, so a pool says there where its shared memory is. That is
read here, and believed no more than the rest.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field

import numpy as np

from stepmill import _native
from stepmill.tools.top.words import Record

__all__ = ["SharedLook", "percentile", "read_shared"]

# Of the envs beyond this number we do not say how long their steps take: it is half a kilobyte per env and look.
MOST_ENVS = 16_384

_LAYOUT = _native.SHARED_LAYOUT
_BOUNDS_S = np.array(_LAYOUT["times_bounds_ns"]) * 1e-9


@dataclass(frozen=True)
class SharedLook:
    """What the workers of a pool have counted: time in envs and actions per worker, and per env how long steps took."""

    busy_s: list[float] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    running_s: dict[int, float] = field(default_factory=dict)  # by env: how long its code has been running now
    times: np.ndarray = field(default_factory=lambda: np.zeros((0, _LAYOUT["times_buckets"]), np.uint32))


def read_shared(pid: int, pool: Record) -> SharedLook:
    """Reads it; an empty look if the pool has no worker processes, or has just ended."""
    if not pool["arena"]:
        return SharedLook()
    try:
        descriptor = os.open(f"/proc/{pid}/fd/{pool['arena']}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return SharedLook()
    try:
        # The number may be another file's by now.
        return _read(descriptor, pool) if os.fstat(descriptor).st_ino == pool["arena_inode"] else SharedLook()
    except (ValueError, OSError):
        return SharedLook()
    finally:
        os.close(descriptor)


def _read(descriptor: int, pool: Record) -> SharedLook:
    envs = min(pool["num_envs"], MOST_ENVS)
    stride = _LAYOUT["worker_words"]
    workers = _words(descriptor, pool["worker_blocks"], pool["num_workers"] * stride).reshape(-1, stride)
    states = _words(descriptor, pool["env_words"], envs)
    begun = _words(descriptor, pool["env_begun"], envs)
    now = time.monotonic_ns()
    times = _native.read_words(descriptor, pool["env_times"], envs * _LAYOUT["times_buckets"] // 2)
    running = np.flatnonzero((states & 0xFF) == _LAYOUT["stage_running"])
    return SharedLook(
        (workers[:, _LAYOUT["worker_busy_ns"]] * 1e-9).tolist(),
        workers[:, _LAYOUT["worker_steps"]].tolist(),
        {int(env): max(0, now - (int(begun[env]) >> 2)) * 1e-9 for env in running},
        np.frombuffer(times, np.uint32).reshape(envs, -1),
    )


def _words(descriptor: int, offset: int, count: int) -> np.ndarray:
    return np.frombuffer(_native.read_words(descriptor, offset, count), np.uint64)


def percentile(times: np.ndarray, part: float) -> np.ndarray:
    """For each row of counts: the seconds below which that part of the steps stayed; 0 without steps."""
    below = np.cumsum(times, axis=1, dtype=np.uint64)
    total = below[:, -1:]
    first = np.argmax(below >= part * total, axis=1)
    found: np.ndarray = np.where(total[:, 0] > 0, _BOUNDS_S[first], 0.0)
    return found
