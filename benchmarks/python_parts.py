"""What is measured with Python envs, one function per part. Each contestant is a process, and they take turns.

So none of them forks with another's threads and memory in it, a crash ends one of them only, and the process can be
asked how long it took from its first import to its first batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks import bare
from benchmarks.python_envs import (
    ASYNC,
    LABELS,
    NEEDS,
    PACKAGES,
    PARALLEL,
    PEERS,
    POOLS,
    SLOWER,
    Case,
    calibrate,
)
from benchmarks.timing import Effort, Log
from stepmill.tools.measuring.machine import cores, version

CASES = (
    Case("cartpole", 64),
    Case("cartpole", 8),
    Case("cartpole", 2),
    Case("busy", 64),
    Case("frame", 64),
    Case("busy", 2),
)
START = Case("cartpole", 64)
UNEVEN = Case("busy", 64, batch_size=32)
SPEEDS = ("even", "work", "wait")  # no env is slower; one by work; one by waiting
MEMORY_BATCHES = 10

Plan = Sequence[tuple[str, Case]]  # contestants whose rates add up: one, but for the loops that never meet


def throughput(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second of each, and of plain loops: on one core, and on all of them, meeting and not."""
    return [_compare(case, effort, log) for case in CASES]


def start(effort: Effort, log: Log) -> dict[str, Any]:
    """Seconds from the first import to the first batch, in a fresh interpreter."""
    samples = _one_by_one("start-up", lambda host: host.start_s, max(3, effort.repeats), log)
    return {name: {"seconds": statistics.median(all_), "samples": all_} for name, all_ in samples.items()}


def memory(effort: Effort, log: Log) -> dict[str, Any]:
    """Bytes of all processes of a contestant, and how many they are."""
    samples = _one_by_one("memory", lambda host: host.memory(MEMORY_BATCHES), 3, log)
    out: dict[str, Any] = {}
    for name, all_ in samples.items():
        if None in all_:
            log("  this system does not tell (/proc/*/smaps_rollup): left out")
            return {}
        sizes = [one["bytes"] for one in all_]
        out[name] = {"bytes": statistics.median(sizes), "samples": sizes, "processes": all_[-1]["processes"]}
    return out


def _one_by_one(what: str, ask: Callable[[Host], Any], turns: int, log: Log) -> dict[str, list[Any]]:
    """One answer from each in turn, while no other one runs; a contestant that fails is out."""
    samples: dict[str, list[Any]] = {name: [] for name in available(POOLS)}
    for turn in range(turns):
        log(f"{what} of 64 CartPoles, round {turn + 1} of {turns}")
        for name in list(samples):
            with teams({name: [(name, START)]}, log) as started:
                if name not in started:
                    del samples[name]
                    continue
                try:
                    samples[name].append(ask(started[name][0]))
                except HostError as error:
                    log(f"  {_label(name)}: left out, {error}")
                    del samples[name]
    return samples


def uneven(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """First ready, first served: with no slow env, and with one that is slower by working or by waiting."""
    base = replace(UNEVEN, iterations=iterations())
    log(f"{base.label} ({base.iterations:,} iterations), batches of {base.batch_size}, one {SLOWER} times slower")
    cases = {speed: replace(base, slow=None if speed == "even" else speed) for speed in SPEEDS}
    plans = {f"{name} {speed}": [(name, cases[speed])] for name in available(ASYNC) for speed in SPEEDS}
    with teams(plans, log) as started:
        rates = rounds(started, effort, log)
    out = []
    for name in available(ASYNC):
        row: dict[str, Any] = {speed: rates[f"{name} {speed}"] for speed in SPEEDS if f"{name} {speed}" in rates}
        if len(row) == len(SPEEDS):
            shares = {f"{s}_of_even": row[s]["steps_per_s"] / row["even"]["steps_per_s"] for s in SPEEDS[1:]}
            out.append({"name": name, "num_envs": base.num_envs, "batch_size": base.batch_size, **row, **shares})
    return out


PARTS: dict[str, Callable[[Effort, Log], Any]] = {
    "python": throughput,
    "python-start": start,
    "python-memory": memory,
    "python-async": uneven,
}


# ---- contestants, and how much work ----------------------------------------------------------------


def announce(log: Log) -> None:
    """Prints which versions take part and which are missing."""
    found = {label: version(package) for package, label in PACKAGES.items()}
    log("Python envs: " + ", ".join(f"{label} {number}" for label, number in found.items() if number))
    for label, number in found.items():
        if number is None:
            log(f"{label} is not installed: left out (make bench installs it)")


def available(names: Sequence[str]) -> list[str]:
    """The contestants whose packages are installed."""
    return [name for name in names if name not in NEEDS or version(NEEDS[name]) is not None]


@cache
def iterations() -> int:
    """The work of one step, measured once per run: every contestant gets the same."""
    return calibrate()


# ---- one comparison --------------------------------------------------------------------------------


def _compare(case: Case, effort: Effort, log: Log) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case.label, "env": case.env, "num_envs": case.num_envs}
    if case.env == "cartpole":
        log(case.label)
    else:
        case = replace(case, iterations=iterations())
        row["iterations"] = case.iterations
        log(f"{case.label} ({case.iterations:,} iterations)")
    plans: dict[str, Plan] = {name: [(name, case)] for name in available(("bare", "async", *POOLS))} | _loops(case)
    with teams(plans, log) as started:
        row |= rounds(started, effort, log)
    return row | ratios(row)


def _loops(case: Case) -> dict[str, Plan]:
    """Plain loops on all cores, with the envs that a worker of the pool would have: never meeting, and meeting."""
    loops = min(cores(), case.num_envs)
    ends = [case.num_envs * i // loops for i in range(loops + 1)]
    plans: dict[str, Plan] = {
        "free": [("bare", replace(case, num_envs=last - first)) for first, last in itertools.pairwise(ends)]
    }
    barrier = bare.barrier_library()
    if barrier is not None:
        plans["meeting"] = [("meeting", replace(case, loops=loops, barrier=barrier))]
    return plans


def ratios(row: Mapping[str, Any]) -> dict[str, float]:
    """What stepmill reaches with its defaults, compared with the others."""
    rates = {name: row[name]["steps_per_s"] for name in LABELS if name in row}
    ours = rates.get("auto")
    if ours is None:
        return {}
    bounds = {
        "over_async": rates.get("gymnasium_async", 0),
        "over_parallel": max((rates[name] for name in PARALLEL if name in rates), default=0),
        "over_best": max((rates[name] for name in PEERS if name in rates), default=0),
        "of_better": max(rates["inline"], rates["process"]) if {"inline", "process"} <= rates.keys() else 0,
    }
    return {name: ours / bound for name, bound in bounds.items() if bound}


def rounds(started: dict[str, list[Host]], effort: Effort, log: Log) -> dict[str, dict[str, Any]]:
    """One sample of each, round after round; a contestant that fails is out."""
    samples: dict[str, list[float]] = {name: [] for name in started}
    for _ in range(effort.repeats):
        for name in list(samples):
            try:
                samples[name].append(_rate(started[name], effort.seconds))
            except HostError as error:
                log(f"  {_label(name)}: left out, {error}")
                del samples[name]
    out: dict[str, dict[str, Any]] = {}
    for name, all_ in samples.items():
        out[name] = {"steps_per_s": statistics.median(all_), "samples": all_}
        if started[name][0].backend is not None:
            out[name]["backend"] = started[name][0].backend
    return out


def _rate(team: list[Host], seconds: float) -> float:
    for host in team:
        host.ask_rate(seconds)
    return sum(host.rate(seconds) for host in team)


@contextlib.contextmanager
def teams(plans: Mapping[str, Plan], log: Log) -> Iterator[dict[str, list[Host]]]:
    """Starts every contestant that can, one after the other, and ends them all."""
    started: dict[str, list[Host]] = {}
    hosts: list[Host] = []
    try:
        for name, plan in plans.items():
            try:
                for contestant, case in plan:
                    hosts.append(Host(contestant, case))
            except HostError as error:
                log(f"  {_label(name)}: left out, {error}")
            else:
                started[name] = hosts[-len(plan) :]
        yield started
    finally:
        for host in hosts:
            host.close()


def _label(name: str) -> str:
    """The name of a contestant, with its addition."""
    contestant, _, rest = name.partition(" ")
    return f"{LABELS[contestant]}{f' ({rest})' if rest else ''}"


# ---- the process of a contestant: ``python_child`` is its other side -------------------------------

ROOT = Path(__file__).resolve().parent.parent
PATIENCE_S = 120  # for one answer, above the seconds that were asked for


class HostError(Exception):
    """The contestant's process ended, or said nothing for too long."""


class Host:
    """A contestant in its own process. Waits until it has its first batch."""

    def __init__(self, name: str, case: Case) -> None:
        self.backend: str | None = None  # of a stepmill pool, as it was at the end of the last measurement
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-W", "ignore", "-m", "benchmarks.python_child"),
                *(name, json.dumps(dataclasses.asdict(case))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            bufsize=0,
            start_new_session=True,  # so that all it starts can be found, and ended with it
        )
        self.start_s: float = self._answer(0)["start_s"]

    def ask_rate(self, seconds: float) -> None:
        self._ask(f"rate {seconds}")

    def rate(self, seconds: float) -> float:
        """Steps per second; the question may have been asked before, to ask several processes at once."""
        answer = self._answer(seconds)
        self.backend = answer["backend"]
        return float(answer["rate"])

    def memory(self, calls: int) -> dict[str, Any] | None:
        """Bytes of all processes together after that many more batches, and the number of processes."""
        self._ask(f"memory {calls}")
        found: dict[str, Any] | None = self._answer(0)["memory"]
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._kill()
        self._errors.close()

    def _ask(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
        except OSError:
            self._fail("ended")

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            ready, _, _ = select.select([self._process.stdout], [], [], seconds * 2 + PATIENCE_S)
        except BaseException:
            self._kill()
            raise
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._fail("ended" if ready else f"did not answer for {PATIENCE_S} s")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _fail(self, what: str) -> None:
        self._kill()
        self._errors.seek(0)
        said = [line for line in self._errors.read().decode(errors="replace").splitlines() if line.strip()]
        self._errors.close()
        raise HostError(f"{what}: {said[-1].strip()}" if said else what)

    def _kill(self) -> None:
        """The process leads a session: this ends what it started too."""
        if self._process.returncode is None:  # not waited for, so the number is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
