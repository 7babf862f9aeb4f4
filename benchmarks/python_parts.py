"""What is measured with Python envs, one function per part. Each contestant is a process, and they take turns."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from benchmarks import bare
from benchmarks.python_contestants import ASYNC, LABELS, NEEDS, PACKAGES, PARALLEL, PEERS, POOLS
from benchmarks.python_envs import SLOWER, Case, calibrate
from benchmarks.python_host import Host, HostError
from benchmarks.timing import Effort
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

Log = Callable[[str], None]
Plan = Sequence[tuple[str, Case]]  # contestants whose rates add up: one, but for the loops that never meet
Team = list[Host]


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
    """What stepmill reaches with its defaults, compared with the others and with what the cores can do."""
    rates = {name: row[name]["steps_per_s"] for name in LABELS if name in row}
    ours = rates.get("auto")
    if ours is None:
        return {}
    bounds = {
        "of_meeting": rates.get("meeting", 0),
        "over_async": rates.get("gymnasium_async", 0),
        "over_parallel": max((rates[name] for name in PARALLEL if name in rates), default=0),
        "over_best": max((rates[name] for name in PEERS if name in rates), default=0),
        "of_better": max(rates["inline"], rates["process"]) if {"inline", "process"} <= rates.keys() else 0,
    }
    out = {name: ours / bound for name, bound in bounds.items() if bound}
    if {"async", "free"} <= rates.keys():
        out["async_of_free"] = rates["async"] / rates["free"]
    return out


def rounds(started: dict[str, Team], effort: Effort, log: Log) -> dict[str, dict[str, Any]]:
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


def _rate(team: Team, seconds: float) -> float:
    for host in team:
        host.ask_rate(seconds)
    return sum(host.rate(seconds) for host in team)


@contextmanager
def teams(plans: Mapping[str, Plan], log: Log) -> Iterator[dict[str, Team]]:
    """Starts every contestant that can, one after the other, and ends them all."""
    started: dict[str, Team] = {}
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
