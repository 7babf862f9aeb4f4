"""Envs that wait: thousands of steps at once, beside a bare event loop and threads, and what a session's step costs.

Each sample is a process of its own, ``waiting_child``, so that CPU time and memory are those of one contestant.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from typing import Any

import stepmill
from benchmarks import session_costs
from benchmarks.cells import Results, Table
from benchmarks.store import ROOT
from benchmarks.timing import Effort, Log
from benchmarks.waiting_child import CONTESTANTS

SIZES = (256, 1024, 8192)
MOST_THREADS = 1024  # many systems refuse more
LEAST_S = 4.0  # each step takes a second
ROUNDS, QUICK_ROUNDS = 3, 1
PATIENCE_S = 120

LABELS = {
    "stepmill": "stepmill, arrays",
    "stepmill_text": "stepmill, 200 characters of text",
    "gather": "asyncio.gather, arrays",
    "threads": "a thread per env, arrays",
}


def waiting(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second, CPU time and memory; medians, each in turn."""
    return [_compare(num_envs, effort, log) for num_envs in SIZES]


def _compare(num_envs: int, effort: Effort, log: Log) -> dict[str, Any]:
    names = [name for name in CONTESTANTS if name != "threads" or num_envs <= MOST_THREADS]
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    rounds = QUICK_ROUNDS if effort.quick else ROUNDS
    for turn in range(rounds):
        log(f"{num_envs:,} envs that wait for a second, round {turn + 1} of {rounds}")
        for name in names:
            samples[name].append(_sample(name, num_envs, max(effort.seconds, LEAST_S)))
    medians = {
        name: {key: statistics.median(one[key] for one in all_) for key in all_[0]} | {"samples": all_}
        for name, all_ in samples.items()
    }
    return {"num_envs": num_envs, **medians}


def _sample(name: str, num_envs: int, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.waiting_child", name, str(num_envs), str(seconds)]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, timeout=seconds + PATIENCE_S, check=True, start_new_session=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def waiting_table(results: Results) -> Table:
    """What a row says is of all processes of a contestant."""
    rows = [
        (
            f"{row['num_envs']:,}: {label}",
            f"{row[name]['steps_per_s'] / row['num_envs']:.1%}",
            f"{row[name]['cpu_us']:,.0f} µs",
            f"{row[name]['bytes'] / 1e6:,.0f} MB",
            f"{row[name]['make_cpu_s']:.2f} s",
        )
        for row in results["parts"]["waiting"]
        for name, label in LABELS.items()
        if name in row
    ]
    columns = ("envs", "of the most steps", "CPU time of a step", "memory", "CPU time of making them")
    return Table("Envs whose steps wait for a second", columns, rows)


# ---- sessions --------------------------------------------------------------------------------------


def sessions(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """CPU time of ``await env.step(action)`` on native CartPoles, in this process; medians, each in turn."""
    samples: dict[int, list[float]] = {count: [] for count in session_costs.SESSIONS}
    steps = 10_000 if effort.quick else session_costs.STEPS
    for turn in range(effort.repeats):
        log(f"CartPole-v1 in sessions, round {turn + 1} of {effort.repeats}")
        for count, costs in samples.items():
            with stepmill.make("CartPole-v1", num_envs=count) as pool:
                costs.append(session_costs.cpu_per_step(pool, count, steps))
    return [
        {"sessions": count, "cpu_us": statistics.median(costs) * 1e6, "samples": costs}
        for count, costs in samples.items()
    ]


def sessions_table(results: Results) -> Table:
    rows = [(f"{row['sessions']:,}", f"{row['cpu_us']:.1f} µs") for row in results["parts"]["sessions"]]
    return Table("CartPole-v1, one await env.step", ("sessions at once", "CPU time of a step"), rows)
