"""Looks at the pools of running processes from outside: what ``stepmill top`` shows, and prints with ``--json``.

A process with pools has a file of counters, which only processes of the same user can open
(``cpp/core/counters/counter_file.h``). It is found through /proc; a look makes snapshots of the pools
(``hosts/observing.py``), and a report says what happened between two looks.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from stepmill import _native
from stepmill.errors import UsageError
from stepmill.hosts.observing import Interval, Snapshot, Words, printable, read_snapshot

_LINK = f"/memfd:{_native.COUNTER_FILE} (deleted)"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_LONGEST_COMMAND = 4096
_MOST_TIMES = 16_384  # of a pool's envs, those whose step times are read: it is half a kilobyte per env and look


@dataclass(frozen=True)
class ProcessSnapshot:
    """A process at one moment."""

    pid: int
    at: float
    command: str
    rss_bytes: int | None
    cpu_seconds: float | None
    hidden_pools: int
    pools: dict[int, Snapshot]  # by their serial numbers, in the order in which they were made
    shows_pids: bool  # whether the pids of workers are as we see them: in a container they may be anybody's here


def look_at(pid: int) -> ProcessSnapshot:
    """Looks at the pools of a process.

    Raises:
        UsageError: It is gone, has no pools, or cannot be looked at.
    """
    descriptor = _counters_of(pid)
    try:
        words, found = _native.read_pools(descriptor)
    except ValueError as error:
        raise UsageError(f"process {pid}: {error}") from None
    finally:
        os.close(descriptor)
    ticks = _native.read_ticks()
    header = Words(_native.HEADER_WORDS, words)
    pools = [read_snapshot(one, ticks, partial(_opened, pid), _MOST_TIMES) for one in found]
    return ProcessSnapshot(
        pid,
        time.monotonic(),
        _command_of(pid),
        resident_bytes(pid),
        _cpu_seconds(pid),
        header["hidden"],
        {one.serial: one for one in sorted(pools, key=lambda one: one.serial)},
        header["pid"] == pid,
    )


@contextlib.contextmanager
def _opened(pid: int, number: int) -> Iterator[int]:
    """A descriptor of a file that another process has open."""
    descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def pids_with_pools() -> list[int]:
    """The processes of this user that have pools."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, UsageError):
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                os.close(_counters_of(int(name)))
                found.append(int(name))
    return sorted(found)


@contextlib.contextmanager
def _explained(pid: int) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, ProcessLookupError):
        raise UsageError(f"there is no process {pid}") from None
    except PermissionError:
        raise UsageError(_why_forbidden(pid)) from None


def _why_forbidden(pid: int) -> str:
    owner = None
    with contextlib.suppress(OSError):
        owner = os.stat(f"/proc/{pid}").st_uid
    if owner is not None and owner != os.geteuid() and owner != 0:
        return f"process {pid} belongs to another user (uid {owner}): only that user can look at its pools"
    return (
        f"the system does not let this user look into process {pid}: it is another user's, or has protected itself "
        "(it was started with other rights, or runs in a sandbox)"
    )


def _counters_of(pid: int) -> int:
    """A descriptor of the process's file of counters, which the caller closes.

    Raises:
        UsageError: There is none, in words.
    """
    if not os.path.isdir("/proc/self/fd"):
        raise UsageError("/proc is not mounted here, and stepmill top sees other processes only through it")
    with _explained(pid):
        own_pid = _pid_in_its_namespace(pid)
        for name in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(path) == _LINK:
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                    if _is_of(descriptor, own_pid):
                        return descriptor
                    os.close(descriptor)
        raise UsageError(_why_none(pid))


def _is_of(descriptor: int, pid: int) -> bool:
    """Whether the file is the process's own. A child has its parent's for a moment, between its start and an exec."""
    try:
        header = _native.read_words(descriptor, 0, sum(count for _, count in _native.HEADER_WORDS))
    except ValueError:
        return True  # whoever reads it will say what is wrong
    return Words(_native.HEADER_WORDS, header)["pid"] == pid


def _pid_in_its_namespace(pid: int) -> int:
    """How the process knows itself: in a container that is another number than outside."""
    with open(f"/proc/{pid}/status") as lines:
        for line in lines:
            if line.startswith("NSpid:"):
                return int(line.split()[-1])
    return pid


def _why_none(pid: int) -> str:
    has_stepmill = False
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", errors="replace") as lines:
        has_stepmill = any("/stepmill/_native." in line for line in lines)
    if not has_stepmill:
        return f"process {pid} has no pools of stepmill"
    return (
        f"process {pid} has loaded stepmill, but shows no pools: none is open, or the system has refused it the memory "
        "for that (memfd_create, in a sandbox; or it has no descriptors left). pool.stats() inside of it works anyway"
    )


# ---- what else is known of a process -------------------------------------------------------------


def _command_of(pid: int) -> str:
    """Its command line, as text that can be printed; empty if it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        return printable(file.read(_LONGEST_COMMAND).rstrip(b"\0").replace(b"\0", b" "))
    return ""


def resident_bytes(pid: int) -> int | None:
    """The memory that it has in use, shared memory included; None if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * _PAGE
    return None


def _cpu_seconds(pid: int) -> float | None:
    """The time that it has computed; None if it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()  # its name may contain anything
        return (int(fields[11]) + int(fields[12])) / _TICK
    return None


# ---- what happened between two looks --------------------------------------------------------------

_SHOWN = (
    *("name", "backend", "user", "num_envs", "batch_size", "age_seconds", "calls", "batches", "steps", "episodes"),
    *("failures", "restarts", "in_flight", "batches_held", "memory_bytes", "state", "state_seconds"),
)
_MOST_SLOW = 5
_LONG_SECONDS = 1.0  # a step that has run for this long is worth a line, whatever the others take


def report(before: ProcessSnapshot | None, after: ProcessSnapshot) -> dict[str, Any]:
    """Rates and shares are those of the time between the looks, or since the pool was made if it was made later."""
    cpu = None
    if before is not None and None not in (before.cpu_seconds, after.cpu_seconds) and after.at > before.at:
        cpu = max(0.0, (after.cpu_seconds or 0.0) - (before.cpu_seconds or 0.0)) / (after.at - before.at)
    earlier = {} if before is None else before.pools
    return {
        "pid": after.pid,
        "command": after.command,
        "rss_bytes": after.rss_bytes,
        "cpu": cpu,
        "hidden_pools": after.hidden_pools,
        "pools": [_pool(earlier.get(serial), one, after.shows_pids) for serial, one in after.pools.items()],
    }


def _pool(before: Snapshot | None, after: Snapshot, shows_pids: bool) -> dict[str, Any]:
    lately = Interval(before, after)
    workers: list[dict[str, Any]] = [
        {
            "pid": one.pid,
            "use": its.use,
            "actions_per_second": its.actions_per_second,
            "restarts": one.restarts,
            "rss_bytes": resident_bytes(one.pid) if one.pid is not None and shows_pids else None,
        }
        for one, its in zip(after.workers, lately.workers(), strict=True)
    ]
    return {
        "number": after.serial,
        **{name: getattr(after, name) for name in _SHOWN},
        "interval_seconds": lately.seconds,
        **{f"{name}_per_second": lately.per_second(name) for name in ("steps", "batches", "episodes")},
        "time": lately.time(),
        "worker_rss_bytes": sum(one["rss_bytes"] or 0 for one in workers) if after.has_processes else None,
        "worker_use": sum(one["use"] for one in workers) / len(workers) if workers else None,
        "workers": workers,
        "slow_envs": _slow_envs(after, lately.running_seconds()),
    }


def _slow_envs(pool: Snapshot, running: dict[int, float]) -> list[dict[str, Any]]:
    """The envs whose steps take longest, the worst first, at most a few.

    In the pool's own process only steps that were measured alone are known, and those that took the whole interval.
    """
    long = _LONG_SECONDS if pool.has_processes else 0.0
    times, slowest = pool.step_seconds(), pool.slow_steps()
    worst = {int(env) for env in (-times["p99"]).argsort()[:_MOST_SLOW] if times["p99"][env] > 0.0}
    worst |= slowest.keys() | {env for env, seconds in running.items() if seconds >= long}
    out = [
        {
            "env": env,
            "running_seconds": running.get(env),
            "step_seconds": {part: float(times[part][env]) for part in times} if env < len(times["p99"]) else None,
            "slowest_seconds": slowest.get(env),
        }
        for env in worst
    ]
    out.sort(key=_slowness, reverse=True)
    return out[:_MOST_SLOW]


def _slowness(env: dict[str, Any]) -> tuple[float, float]:
    usual = env["slowest_seconds"] if env["step_seconds"] is None else env["step_seconds"]["p99"]
    return env["running_seconds"] or 0.0, usual or 0.0
