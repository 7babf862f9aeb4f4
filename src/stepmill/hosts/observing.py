"""One way to observe a pool: a snapshot of what it has counted, and what it did between two of them.

::

    this process: the engine's tap     snapshot_of       Snapshot,      pool.stats()    a dict: stats_of
                                    >                 >  and of two  >  pool.watch()    a page: tools/watching
    another: its file of counters      read_snapshot     an Interval    stepmill top    tables: tools/processes

A pool counts in 64-bit words (``cpp/core/counters/pool_record.h`` names them), and worker processes in the memory that
they share with it. Nothing that is read is trusted: another process may show anything.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stepmill import _native
from stepmill.system.memory import memory_of

# The states of a calling thread, in the order of CallerState in pool_record.h.
_STATES = ("outside", "inside", "waiting", "stepping")
# Words that a snapshot has as they are.
_COUNTS = (
    *("num_envs", "batch_size", "calls", "batches", "steps", "episodes", "failures"),
    *("in_flight", "batches_held", "memory_bytes"),
)
_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_LAYOUT = _native.SHARED_LAYOUT
_BOUNDS_SECONDS = np.array(_LAYOUT["times_bounds_ns"]) * 1e-9


class WatchedPool(NamedTuple):
    """A pool that is watched, whether a view or a manager holds it.

    Attributes:
        engine: Its engine.
        name: What the page is called.
        num_envs: How many envs it has.
        facts: To be shown below it.
        rows: Makes ``(obs, reward, terminated, truncated, info)`` from what the engine returns, if it is not that.
    """

    engine: _native.Engine
    name: str
    num_envs: int
    facts: Sequence[str]
    rows: Callable[[Any], Any] | None = None


# ---- a pool at one moment ------------------------------------------------------------------------


@dataclass(frozen=True)
class WorkerSnapshot:
    """A thread or a process that steps envs: what it has counted since the pool was made.

    Attributes:
        pid: The process; None: a thread, or no process at the moment.
        restarts: How often the process was replaced.
        actions: How many it has done.
        busy_seconds: The time in envs.
        running_seconds: How long the env that it runs now has been running; only known of processes.
        inside: Differs from step to step while a thread is in an env; 0: it is in none.
        slow_steps: By env, the slowest of a thread's last steps that were measured alone, in seconds.
    """

    pid: int | None
    restarts: int
    actions: int
    busy_seconds: float
    running_seconds: float
    inside: int
    slow_steps: dict[int, float]


@dataclass(frozen=True)
class Snapshot:
    """A pool at one moment: what it has counted since it was made. The names are the words of ``stats()``.

    Attributes:
        serial: Differs from every other pool of the process.
        user: "pool", or "manager".
        state: What the calling thread does: it is ``outside`` the pool, ``inside`` a call, ``waiting`` or ``stepping``.
        state_seconds: For how long.
        spent_seconds: The time that the calling thread has been in each state.
        helped_waiting_seconds: The part of ``caller.busy_seconds`` in which it would have waited otherwise.
        caller: What the calling thread has stepped itself.
        has_processes: Whether the workers are processes.
        running_seconds: By env, how long its code has been running now, in worker processes.
        step_times: How many steps of each env took how long, in worker processes: a row per env.
    """

    serial: int
    name: str
    backend: str
    user: str
    num_envs: int
    batch_size: int
    age_seconds: float
    calls: int
    batches: int
    steps: int
    episodes: int
    failures: int
    restarts: int
    in_flight: int
    batches_held: int
    memory_bytes: int
    state: str
    state_seconds: float
    spent_seconds: dict[str, float]
    helped_waiting_seconds: float
    caller: WorkerSnapshot
    workers: list[WorkerSnapshot]
    has_processes: bool
    running_seconds: dict[int, float]
    step_times: np.ndarray

    def step_seconds(self) -> dict[str, np.ndarray]:
        """Percentiles of the step times, a value per env: the seconds below which that part of them stayed."""
        below = np.cumsum(self.step_times, axis=1, dtype=np.uint64)
        total = below[:, -1:]
        return {
            name: np.where(total[:, 0] > 0, _BOUNDS_SECONDS[np.argmax(below >= part * total, axis=1)], 0.0)
            for name, part in _PERCENTILES.items()
        }

    def slow_steps(self) -> dict[int, float]:
        """By env, the slowest of the last steps of threads that were measured alone, in seconds."""
        slowest: dict[int, float] = {}
        for worker in [self.caller, *self.workers]:
            for env, seconds in worker.slow_steps.items():
                slowest[env] = max(slowest.get(env, 0.0), seconds)
        return slowest


# ---- reading it ----------------------------------------------------------------------------------


class Words:
    """Words of a pool or of a worker: ``words["steps"]``, or ``words.many("ticks")`` where there are several."""

    def __init__(self, names: Sequence[tuple[str, int]], words: bytes) -> None:
        values = memoryview(words).cast("Q").tolist()
        self._values: dict[str, list[int]] = {}
        at = 0
        for name, count in names:
            self._values[name] = values[at : at + count]
            at += count

    def __getitem__(self, name: str) -> int:
        return self._values[name][0]

    def many(self, name: str) -> list[int]:
        return self._values[name]

    def text(self, name: str) -> str:
        words = b"".join(one.to_bytes(8, "little") for one in self._values[name])
        return printable(words.partition(b"\0")[0])


def printable(text: bytes) -> str:
    """Text of another process, without anything that a terminal would obey."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text.decode("utf-8", "replace"))


OpenArena = Callable[[int], contextlib.AbstractContextManager[int]]


def read_snapshot(
    counters: tuple[bytes, bytes, Sequence[bytes]],
    ticks: int,
    open_arena: OpenArena,
    most_times: int | None = None,
) -> Snapshot:
    """Reads what a pool has counted.

    Args:
        counters: Words of the pool, of its calling thread and of its workers.
        ticks: The clock of the words, read just after them.
        open_arena: Opens the memory that worker processes share with the pool, by the number of its descriptor there.
        most_times: For how many envs to read their step times, which are half a kilobyte each; None: all.
    """
    pool = Words(_native.POOL_WORDS, counters[0])
    workers = [Words(_native.WORKER_WORDS, one) for one in counters[2]]
    rate = _native.ticks_per_second()
    since, state = pool["state"] >> 2, pool["state"] & 3
    spent = pool.many("ticks")[:]
    spent[state] += max(0, ticks - since)  # the pool adds the time in a state when the state ends
    shared = _read_shared(pool, open_arena, most_times)
    return Snapshot(
        serial=pool["serial"],
        name=pool.text("name"),
        backend=pool.text("backend"),
        user=pool.text("user"),
        age_seconds=max(0, ticks - pool["made"]) / rate,
        restarts=pool["restarts"] + sum(one["restarts"] for one in workers),
        state=_STATES[state],
        state_seconds=max(0, ticks - since) / rate,
        spent_seconds={name: one / rate for name, one in zip(_STATES, spent, strict=True)},
        helped_waiting_seconds=pool["helped_waiting_ns"] * 1e-9,
        caller=_read_worker(Words(_native.WORKER_WORDS, counters[1])),
        workers=_read_processes(pool, workers, shared) if pool["arena"] else [_read_worker(one) for one in workers],
        has_processes=pool["arena"] != 0,
        running_seconds=shared.running_seconds,
        step_times=shared.step_times,
        **{name: pool[name] for name in _COUNTS},
    )


def _read_worker(words: Words) -> WorkerSnapshot:
    window = int(time.monotonic()) // _native.SLOW_WINDOW_S
    slow: dict[int, float] = {}
    for step in filter(None, words.many("slow") if words["window"] >= window - 1 else []):
        env = step & 0xFFFFFF
        slow[env] = max(slow.get(env, 0.0), (step >> 24) * 1e-9)
    inside = words["inside"] if words["inside"] & 0xFFFFFFFF else 0
    return WorkerSnapshot(None, 0, words["steps"], words["busy_ns"] * 1e-9, 0.0, inside, slow)


def _read_processes(pool: Words, workers: Sequence[Words], shared: _Shared) -> list[WorkerSnapshot]:
    firsts = [one["first_env"] for one in workers] + [pool["num_envs"]]
    out = []
    for number, one in enumerate(workers):
        busy, actions = shared.work[number] if number < len(shared.work) else (0.0, 0)
        own = range(firsts[number], firsts[number + 1])
        running = max((seconds for env, seconds in shared.running_seconds.items() if env in own), default=0.0)
        out.append(WorkerSnapshot(one["pid"] or None, one["restarts"], actions, busy, running, 0, {}))
    return out


class _Shared(NamedTuple):
    """What worker processes have counted in the memory that they share with their pool."""

    work: list[tuple[float, int]]  # of each: seconds in envs, actions
    running_seconds: dict[int, float]
    step_times: np.ndarray


def _read_shared(pool: Words, open_arena: OpenArena, most_times: int | None) -> _Shared:
    """Reads it; nothing if the pool has no worker processes, or has just ended."""
    if pool["arena"]:
        with contextlib.suppress(ValueError, OSError), open_arena(pool["arena"]) as descriptor:
            if os.fstat(descriptor).st_ino == pool["arena_inode"]:  # else the number is another file's by now
                return _read_tables(descriptor, pool, most_times)
    return _Shared([], {}, np.zeros((0, _LAYOUT["times_buckets"]), np.uint32))


def _read_tables(descriptor: int, pool: Words, most_times: int | None) -> _Shared:
    def words(place: str, count: int) -> np.ndarray:
        return np.frombuffer(_native.read_words(descriptor, pool[place], count), np.uint64)

    envs = pool["num_envs"]
    timed = envs if most_times is None else min(envs, most_times)
    stride = _LAYOUT["worker_words"]
    workers = words("worker_blocks", pool["num_workers"] * stride).reshape(-1, stride)
    states, begun = words("env_words", envs), words("env_begun", envs)
    now = time.monotonic_ns()
    times = words("env_times", timed * _LAYOUT["times_buckets"] // 2)
    running = np.flatnonzero((states & 0xFF) == _LAYOUT["stage_running"])
    busy = workers[:, _LAYOUT["worker_busy_ns"]] * 1e-9
    return _Shared(
        list(zip(busy.tolist(), workers[:, _LAYOUT["worker_steps"]].tolist(), strict=True)),
        {int(env): max(0, now - (int(begun[env]) >> 2)) * 1e-9 for env in running},
        times.view(np.uint32).reshape(timed, _LAYOUT["times_buckets"]),
    )


def snapshot_of(tap: _native.Tap, times: bool = True) -> Snapshot:
    """A pool of this process, with or without the step times of its envs.

    Any thread may ask, also after the pool has ended.
    """
    counters = tap.counters()
    return read_snapshot(counters, _native.read_ticks(), contextlib.nullcontext, None if times else 0)


# ---- what happened between two of them -----------------------------------------------------------


class Work(NamedTuple):
    """What a worker did: the part of the time in which it was in envs, and its speed."""

    use: float
    actions_per_second: float


class Interval:
    """What a pool did between two snapshots; without the first one, since it was made."""

    def __init__(self, before: Snapshot | None, after: Snapshot) -> None:
        self._before, self._after = before, after
        self.seconds = max(1e-9, after.age_seconds - (0.0 if before is None else before.age_seconds))

    def per_second(self, name: str) -> float:
        """The speed of a count, such as ``steps``."""
        gained = getattr(self._after, name) - (0 if self._before is None else getattr(self._before, name))
        return float(max(0, gained)) / self.seconds

    def time(self) -> dict[str, float]:
        """Which part of the calling thread's time went where; together they are 1.

        The steps of small native batches are part of a call, and not timed apart: the time that the caller was busy
        says what they took.
        """
        before, after = self._before, self._after
        outside, inside, waiting, stepping = (
            max(0.0, after.spent_seconds[name] - (0.0 if before is None else before.spent_seconds[name]))
            for name in _STATES
        )
        helped = max(0.0, after.caller.busy_seconds - (0.0 if before is None else before.caller.busy_seconds))
        earlier = 0.0 if before is None else before.helped_waiting_seconds
        during_wait = min(helped, max(0.0, after.helped_waiting_seconds - earlier))
        briefly = min(inside, helped - during_wait)
        if stepping > 0.0:
            during_wait = 0.0  # it is the same time
        during_wait = min(waiting, during_wait)
        parts = {
            "caller": outside,
            "envs": stepping + during_wait + briefly,
            "waiting": waiting - during_wait,
            "stepmill": inside - briefly,
        }
        total = sum(parts.values()) or 1.0
        return {name: value / total for name, value in parts.items()}

    def workers(self) -> list[Work]:
        """What each worker did."""
        before = [] if self._before is None else self._before.workers
        return [self._work(before[i] if i < len(before) else None, one) for i, one in enumerate(self._after.workers)]

    def _work(self, before: WorkerSnapshot | None, after: WorkerSnapshot) -> Work:
        """A step is counted when it ends, so what has passed of the present one is added."""
        busy, actions = after.busy_seconds + after.running_seconds, after.actions
        if before is not None:
            busy, actions = busy - before.busy_seconds - before.running_seconds, actions - before.actions
        if _is_stuck(before, after):
            busy += self.seconds
        return Work(min(1.0, max(0.0, busy) / self.seconds), max(0, actions) / self.seconds)

    def running_seconds(self) -> dict[int, float]:
        """By env, how long its present step has been running: in processes all envs, on threads those that run since
        the first snapshot.
        """
        if self._after.has_processes:
            return self._after.running_seconds
        before = [] if self._before is None else self._before.workers
        pairs = zip(before, self._after.workers, strict=False)
        return {(new.inside & 0xFFFFFFFF) - 1: self.seconds for old, new in pairs if _is_stuck(old, new)}


def _is_stuck(before: WorkerSnapshot | None, after: WorkerSnapshot) -> bool:
    """Whether a thread has been in the same step all the time."""
    return before is not None and after.inside != 0 and after.inside == before.inside


# ---- as a dict -----------------------------------------------------------------------------------


def stats_of(engine: _native.Engine) -> dict[str, Any]:
    """What ``pool.stats()`` tells of an engine."""
    if not isinstance(engine, _native.Engine):  # what takes its place counts for itself
        figures: dict[str, Any] = engine.figures()
        return figures
    tap = _native.Tap(engine)
    now = snapshot_of(tap)
    since_made = Interval(None, now)
    stats: dict[str, Any] = {
        name: getattr(now, name) for name in ("batches", "steps", "episodes", "failures", "restarts")
    }
    stats["steps_per_second"] = since_made.per_second("steps")
    inside = tap.figures()
    outboxes = inside.pop("outbox_bytes", [])
    stats |= inside
    if now.has_processes:
        works = zip(now.workers, since_made.workers(), outboxes, strict=False)  # no outboxes: it has just ended
        stats["workers"] = [
            {
                "pid": worker.pid,  # None, because kill() would take 0 or -1 for many processes
                "alive": worker.pid is not None,
                "use": work.use,
                "busy_seconds": worker.busy_seconds,
                "actions": worker.actions,
                "restarts": worker.restarts,
                "outbox_bytes": outbox,
                "memory_bytes": memory_of(worker.pid),
            }
            for worker, work, outbox in works
        ]
        stats["step_seconds"] = now.step_seconds()
        stats["clones"] = [{"pid": one.pid, "memory_bytes": one.memory()} for one in engine.host.clones.alive()]
    return stats
