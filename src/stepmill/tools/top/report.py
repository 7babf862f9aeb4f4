"""What happened between two looks at a process, as plain values: the document that ``--json`` prints."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from stepmill import _native
from stepmill.tools.top.looks import PoolLook, ProcessLook
from stepmill.tools.top.shared import percentile
from stepmill.tools.top.words import Record

__all__ = ["report"]

# The states of a calling thread, in the order of CallerState in cpp/core/counters/pool_record.h.
_STATES = ("outside", "inside", "waiting", "stepping")
_MOST_SLOW = 5
_LONG_S = 1.0  # a step that has run for this long is worth a line, whatever the others take


def report(before: ProcessLook | None, after: ProcessLook) -> dict[str, Any]:
    """Rates and shares are those of the time between the looks, or since the pool was made if it was made later."""
    cpu = None
    if before is not None and None not in (before.cpu_s, after.cpu_s) and after.at > before.at:
        cpu = max(0.0, (after.cpu_s or 0.0) - (before.cpu_s or 0.0)) / (after.at - before.at)
    earlier: Mapping[int, PoolLook] = {} if before is None else before.pools
    return {
        "pid": after.pid,
        "command": after.command,
        "rss_bytes": after.rss,
        "cpu": cpu,
        "hidden_pools": after.hidden_pools,
        "pools": [_pool(earlier.get(serial), look) for serial, look in after.pools.items()],
    }


def _pool(before: PoolLook | None, after: PoolLook) -> dict[str, Any]:
    pool = after.pool
    rate = _native.ticks_per_second()
    since = pool["made"] if before is None else before.ticks
    seconds = max(1, after.ticks - since) / rate
    workers = _workers(before, after, seconds)
    earlier = None if before is None else before.pool

    def gained(name: str) -> int:
        return _gained(earlier, pool, name)

    counts = {name: pool[name] for name in ("calls", "batches", "steps", "episodes", "failures")}
    return {
        "number": pool["serial"],
        "name": pool.text("name"),
        "backend": pool.text("backend"),
        "user": pool.text("user"),
        "num_envs": pool["num_envs"],
        "batch_size": pool["batch_size"],
        "age_s": max(0, after.ticks - pool["made"]) / rate,
        "interval_s": seconds,
        **counts,
        "steps_per_second": gained("steps") / seconds,
        "batches_per_second": gained("batches") / seconds,
        "episodes_per_second": gained("episodes") / seconds,
        "state": _STATES[pool["state"] & 3],
        "state_s": max(0, after.ticks - (pool["state"] >> 2)) / rate,
        "time": _shares(before, after, rate),
        "in_flight": pool["in_flight"],
        "batches_held": pool["batches_held"],
        "memory_bytes": pool["memory_bytes"],
        "restarts": sum(one["restarts"] for one in workers),
        "worker_rss_bytes": sum(one["rss_bytes"] or 0 for one in workers) if pool["arena"] else None,
        "worker_use": sum(one["use"] for one in workers) / len(workers) if workers else None,
        "workers": workers,
        "slow_envs": _slow(before, after),
    }


def _gained(before: Record | None, after: Record, name: str) -> int:
    return max(0, after[name] - (0 if before is None else before[name]))


# ---- where the time goes -------------------------------------------------------------------------


def _shares(before: PoolLook | None, after: PoolLook, rate: float) -> dict[str, float]:
    """Which part of the calling thread's time went where; together they are 1.

    The pool adds the time that is spent in a state when the state ends, so we add what has passed of the present one.
    The steps of small native batches are part of a call, and not timed apart: ``busy_ns`` says what they took.
    """
    outside, inside, waiting, stepping = (
        max(0.0, new - old)
        for new, old in zip(_spent(after, rate), [0.0] * 4 if before is None else _spent(before, rate), strict=True)
    )
    helped = _gained(before.caller if before else None, after.caller, "busy_ns") * 1e-9
    during_wait = min(helped, _gained(before.pool if before else None, after.pool, "helped_waiting_ns") * 1e-9)
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


def _spent(look: PoolLook, rate: float) -> list[float]:
    """Seconds in each state, until the look."""
    ticks = look.pool.many("ticks")
    state = look.pool["state"]
    ticks[state & 3] += max(0, look.ticks - (state >> 2))
    return [one / rate for one in ticks]


# ---- workers -------------------------------------------------------------------------------------


def _workers(before: PoolLook | None, after: PoolLook, seconds: float) -> list[dict[str, Any]]:
    """Threads or processes that step envs. ``use``: the part of the time in which they did."""
    firsts = [one["first_env"] for one in after.workers] + [after.pool["num_envs"]]
    out = []
    for number, (one, rss) in enumerate(zip(after.workers, after.worker_rss, strict=True)):
        earlier = None if before is None or number >= len(before.workers) else before.workers[number]
        if after.pool["arena"]:
            present = _longest(after, range(firsts[number], firsts[number + 1]))
            busy, actions = _of_process(before, after, number)
        else:
            same = earlier is not None and one["inside"] & 0xFFFFFFFF and one["inside"] == earlier["inside"]
            present = seconds if same else 0.0
            busy, actions = _gained(earlier, one, "busy_ns") * 1e-9, _gained(earlier, one, "steps")
        out.append(
            {
                "pid": one["pid"] or None,
                "use": min(1.0, (busy + min(present, seconds)) / seconds),
                "actions_per_second": actions / seconds,
                "restarts": one["restarts"],
                "rss_bytes": rss,
            }
        )
    return out


def _longest(look: PoolLook, envs: range) -> float:
    """How long the env that a worker runs now has been running."""
    return max((seconds for env, seconds in look.shared.running_s.items() if env in envs), default=0.0)


def _of_process(before: PoolLook | None, after: PoolLook, number: int) -> tuple[float, int]:
    """The seconds in envs and the actions of a worker process between the looks."""
    if number >= len(after.shared.busy_s):
        return 0.0, 0
    busy, actions = after.shared.busy_s[number], after.shared.actions[number]
    if before is not None and number < len(before.shared.busy_s):
        busy -= before.shared.busy_s[number]
        actions -= before.shared.actions[number]
    return max(0.0, busy), max(0, actions)


# ---- slow envs -----------------------------------------------------------------------------------


def _slow(before: PoolLook | None, after: PoolLook) -> list[dict[str, Any]]:
    """The envs whose steps take longest, the worst first, at most a few."""
    found = _slow_in_processes(after) if after.pool["arena"] else _slow_here(before, after)
    found.sort(key=lambda one: (one["running_s"] or 0.0, one["p99_s"] or one["slowest_s"] or 0.0), reverse=True)
    return found[:_MOST_SLOW]


def _slow_in_processes(look: PoolLook) -> list[dict[str, Any]]:
    times = look.shared.times
    if not len(times):
        return []
    p50, p99 = percentile(times, 0.5), percentile(times, 0.99)
    running = look.shared.running_s
    worst = {int(env) for env in (-p99).argsort()[:_MOST_SLOW] if p99[env] > 0.0}
    worst |= {env for env, seconds in running.items() if seconds >= _LONG_S}
    return [_slow_env(env, running.get(env), float(p50[env]) or None, float(p99[env]) or None, None) for env in worst]


def _slow_here(before: PoolLook | None, after: PoolLook) -> list[dict[str, Any]]:
    """In this process only steps that were measured alone are known, and the present one of each thread."""
    window = int(time.monotonic()) // _native.SLOW_WINDOW_S
    slowest: dict[int, float] = {}
    for record in [after.caller, *after.workers]:
        if record["window"] >= window - 1:
            for step in filter(None, record.many("slow")):
                env = step & 0xFFFFFF
                slowest[env] = max(slowest.get(env, 0.0), (step >> 24) * 1e-9)
    running = {} if before is None else _stuck(before, after)
    return [_slow_env(env, running.get(env), None, None, slowest.get(env)) for env in {*slowest, *running}]


def _stuck(before: PoolLook, after: PoolLook) -> dict[int, float]:
    """Envs that a thread has been stepping since the last look, and at least for how long."""
    seconds = max(0, after.ticks - before.ticks) / _native.ticks_per_second()
    return {
        (new["inside"] & 0xFFFFFFFF) - 1: seconds
        for old, new in zip(before.workers, after.workers, strict=False)
        if new["inside"] & 0xFFFFFFFF and new["inside"] == old["inside"]
    }


def _slow_env(
    env: int, running: float | None, p50: float | None, p99: float | None, slowest: float | None
) -> dict[str, Any]:
    return {"env": env, "running_s": running, "p50_s": p50, "p99_s": p99, "slowest_s": slowest}
