"""Pools inside of programs that JAX compiles, beside EnvPool's, each in a process of its own."""

from __future__ import annotations

import importlib.util
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.cells import Results, Table, by_row, envpool, rate, times
from benchmarks.store import ROOT
from benchmarks.timing import Effort, Log
from stepmill.tools.measuring.machine import cores, up_to

SIZES = (64, 1024)


def xla(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """CartPole, 1,000 steps in one compiled loop, all envs in each; medians, each in turn."""
    if importlib.util.find_spec("jax") is None:
        log("no JAX: left out")
        return []
    return [_compare(num_envs, effort, log) for num_envs in SIZES]


def _compare(num_envs: int, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"CartPole-v1 in jax.jit, {num_envs:,} envs")
    contestants = {"stepmill": _Child("stepmill", num_envs)}
    if importlib.util.find_spec("envpool") is None:
        log("  no EnvPool: left out")
    else:
        for threads in up_to(cores()):
            contestants[f"envpool-{threads}"] = _Child("envpool", num_envs, threads)
    samples: dict[str, list[float]] = {name: [] for name in contestants}
    try:
        for _ in range(effort.repeats):
            for name, child in contestants.items():
                samples[name].append(child.measure(effort.seconds))
    finally:
        for child in contestants.values():
            child.close()
    medians = {name: statistics.median(all_) for name, all_ in samples.items()}
    row: dict[str, Any] = {"num_envs": num_envs, "stepmill": _result(medians, samples, "stepmill")}
    theirs = [name for name in contestants if name != "stepmill"]
    if theirs:
        best = max(theirs, key=medians.__getitem__)  # EnvPool's best number of threads
        row["envpool"] = {**_result(medians, samples, best), "num_threads": int(best.rpartition("-")[2])}
    return row


def _result(medians: dict[str, float], samples: dict[str, list[float]], name: str) -> dict[str, Any]:
    return {"steps_per_s": medians[name], "samples": samples[name]}


class _Child:
    """A contestant's process, which measures when it is told to."""

    def __init__(self, library: str, num_envs: int, threads: int = 0) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.xla_child", library, str(num_envs), str(threads)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        if self._read() != "ready":
            raise RuntimeError(f"{library} did not start")

    def measure(self, seconds: float) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


def xla_table(results: Results) -> Table:
    return by_row(
        "CartPole-v1 in one jitted loop of 1,000 steps",
        results["parts"]["xla"],
        ("envs", lambda row: f"{row['num_envs']:,}"),
        ("stepmill", lambda row: rate(row["stepmill"])),
        (envpool(results, "xla"), lambda row: rate(row.get("envpool"))),
        ("stepmill is faster", lambda row: times(row, "envpool")),
    )
