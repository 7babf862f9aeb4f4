"""How long to measure, a function as a contestant, and CPU time. ``stepmill.tools.measuring`` reads the clock.

Seconds vary with what else a machine does; CPU time varies less, and tells what the cores could do at most.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stepmill.tools.measuring import runners as measuring

LEAST_S = 1.0  # for CPU time: a batch takes up to tens of milliseconds, and shorter samples would hold too few

Log = Callable[[str], None]


@dataclass(frozen=True)
class Effort(measuring.Effort):
    """``repeats`` rounds, ``seconds`` for each contestant in each."""

    quick: bool = False
    device: str = "cpu"  # of networks, where there are any that are worth it

    @property
    def search_s(self) -> float:
        """The time for each trial of a thread count, before the rounds."""
        return self.seconds / 2


@dataclass
class Calls:
    """A function as a contestant: each call makes ``rows_per_call`` steps."""

    call: Callable[[], Any]
    rows_per_call: int
    close: Callable[[], None] = lambda: None

    def run(self, calls: int) -> None:
        for _ in range(calls):
            self.call()


def interleaved(runners: dict[str, Any], effort: Effort) -> dict[str, dict[str, Any]]:
    """The median of one sample in each round, so that a disturbance hits all of them alike."""
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(effort.repeats):
        for name, runner in runners.items():
            samples[name].append(measuring.sample(runner, effort.seconds))
    return {name: {"steps_per_s": statistics.median(all_), "samples": all_} for name, all_ in samples.items()}


# ---- CPU time --------------------------------------------------------------------------------------


def interleaved_with_cpu_time(runners: dict[str, Any], effort: Effort) -> dict[str, dict[str, Any]]:
    """One sample of each, round after round, so that a disturbance hits all of them alike."""
    rates: dict[str, list[float]] = {name: [] for name in runners}
    costs: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(effort.repeats):
        for name, runner in runners.items():
            counted, before = _Counted(runner), cpu_seconds()
            rates[name].append(measuring.steps_per_second(counted, max(effort.seconds, LEAST_S)))
            costs[name].append((cpu_seconds() - before) / counted.steps)
    return {
        name: {
            "steps_per_s": statistics.median(rates[name]),
            "samples": rates[name],
            "cpu_us": statistics.median(costs[name]) * 1e6,
            "num_threads": getattr(runner, "num_threads", None),
        }
        for name, runner in runners.items()
    }


class _Counted:
    """A runner that counts its steps, those of the warm-up too."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self.rows_per_call = runner.rows_per_call
        self.steps = 0

    def run(self, calls: int) -> None:
        self._runner.run(calls)
        self.steps += calls * self.rows_per_call


def cpu_seconds() -> float:
    """CPU time of this process and its descendants, those that have ended too. Contestants that do not run use none."""
    parents, of_ended = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()  # after the name: state, parent, ...
        except OSError:  # it ended meanwhile
            continue
        parents[int(entry)] = int(fields[1])
        of_ended[int(entry)] = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(of_ended.get(pid, 0.0) + _own_cpu_seconds(pid) for pid in family)


def _own_cpu_seconds(pid: int) -> float:
    """By the clock of the process, which is far finer than the ticks in /proc."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid computes it
    except OSError:  # it ended meanwhile
        return 0.0
