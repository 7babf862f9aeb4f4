"""What happened between two looks at a process, as plain values: the document that ``--json`` prints."""

from __future__ import annotations

from typing import Any

from stepmill.hosts.observing import Interval, Snapshot
from stepmill.tools.top.processes import ProcessSnapshot, resident_bytes

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
