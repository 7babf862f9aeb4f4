"""JAX worlds: pools beside the suites' own loops, call by call and in a scan, on the CPU or a GPU."""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.cells import Results, Table, time_of
from benchmarks.timing import Effort, Log


def worlds(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second; ``--device cuda`` says where."""
    missing = [name for name in ("jax", "gymnax", "brax") if importlib.util.find_spec(name) is None]
    if missing:
        log(f"no {', '.join(missing)}: left out")
        return []
    from benchmarks import world_loops

    rows = []
    for env, num_envs in world_loops.CASES:
        log(f"{num_envs:,} {env} in a pool and in a loop of the suite's own functions")
        rows.append(world_loops.compare(env, num_envs, effort.device, effort))
    return rows


def worlds_table(results: Results) -> Table:
    rows = [
        (
            f"{row['num_envs']:,} {row['env']}" + (f" on {row['device']}" if row["device"] != "cpu" else ""),
            *(time_of(1e9 * row["num_envs"] / row[name]["steps_per_s"]) for name in ("pool", "loop")),
            f"{row['step']:.2f}x",
            *(time_of(1e9 * row["num_envs"] / row[name]["steps_per_s"]) for name in ("pool_scan", "loop_scan")),
            f"{row['scan']:.2f}x",
        )
        for row in results["parts"]["worlds"]
    ]
    columns = (
        *("envs", "a step of the pool", "of the suite's loop", "time, of the loop's"),
        *("in a scan: functional()", "the suite's functions", "time, of the loop's there"),
    )
    return Table("JAX worlds, a step of all envs", columns, rows)
