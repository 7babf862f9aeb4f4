"""Native envs on a GPU, beside a kernel written by hand and gymnax: ``benchmarks.cuda_loops`` as a part."""

from __future__ import annotations

import importlib.util
from typing import Any

from benchmarks.cells import MISSING, Results, Table, number, three_digits, time_of
from benchmarks.timing import Effort, Log


def cuda(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """CartPole, the one that is built in and one in a file."""
    if importlib.util.find_spec("torch") is None:
        log("no torch: left out")
        return []
    import torch

    if not torch.cuda.is_available():
        log("no GPU: left out")
        return []
    from benchmarks import cuda_loops

    rows = []
    for task in cuda_loops.TASKS:
        for num_envs in cuda_loops.SIZES:
            log(f"{num_envs:,} {task} on a GPU, beside a plain kernel and gymnax")
            rows.append({**cuda_loops.compare(task, num_envs, effort), "gpu": torch.cuda.get_device_name()})
    return rows


def cuda_table(results: Results) -> Table:
    rows = [
        (
            f"{row['num_envs']:,} {row['env']} on {row['gpu']}",
            f"{row['bytes']}",
            *(_time(row, name) for name in ("pool", "plain", "gymnax")),
            _ratio(row, "pool", "gymnax"),
            *(_time(row, name) for name in ("pool_graph", "plain_graph")),
            _ratio(row, "pool_graph", "plain_graph"),
            _ratio(row, "pool_graph", "gymnax"),
            number(row["pool_graph"]["steps_per_s"]),
        )
        for row in results["parts"]["cuda"]
    ]
    columns = (
        *("envs", "bytes per step", "a step of the pool", "of a plain kernel", "of gymnax", "faster than gymnax"),
        *("in a graph: the pool", "the plain kernel", "the pool reaches", "faster than gymnax", "steps per second"),
    )
    return Table("Native envs on a GPU, a step of all envs", columns, rows)


def _time(row: dict[str, Any], name: str) -> str:
    return time_of(1e9 * row["num_envs"] / row[name]["steps_per_s"] if name in row else None)


def _ratio(row: dict[str, Any], ours: str, theirs: str) -> str:
    return f"{three_digits(row[ours]['steps_per_s'] / row[theirs]['steps_per_s'])}x" if theirs in row else MISSING
