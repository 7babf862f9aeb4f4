"""What ``backend="auto"`` asks a worker and what it answers: the cost of a step."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class StepTrial:
    """How to try out env 0: reset it with ``seed``, and how much time to spend."""

    seed: int
    heavy_s: float  # an env whose constructor takes longer is not stepped
    enough_s: float  # how long to step it
    most_s: float  # for everything: after that it is killed


@dataclass(frozen=True)
class StepCost:
    """The cost of a step, in seconds."""

    own: float  # the env's own code, including its share of resets; infinite if it took longer than the trial
    info: float  # pickling and unpickling the info, which only worker processes do
    waits: bool = False  # whether the env mostly waits, for a network or a clock, and leaves its core to others


class Stopwatch:
    """Tells how much of the time since it was made a process, with all that it has started, had something to do."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic()
        self._before = _busy_s(pid)

    def mostly_waits(self) -> bool:
        """Whether that was less than half of the time."""
        return _busy_s(self._pid) - self._before < 0.5 * (time.monotonic() - self._began)


def _busy_s(pid: int) -> float:
    """Seconds for which a process and its descendants ran; or were ready to, while others had the core."""
    seconds = time.process_time() if pid == os.getpid() else 0.0  # what the kernel shows is up to a tick behind
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # the process has ended: a trial is short, and may be over before the caller looks
        return seconds
    for task in tasks:
        with contextlib.suppress(OSError, ValueError):  # the thread has ended
            ran, ready = _run_times(task)
            seconds += ready if pid == os.getpid() else ran + ready
            seconds += sum(_busy_s(int(child)) for child in (task / "children").read_text().split())
    return seconds


def _run_times(task: Path) -> tuple[float, float]:
    """For how long a thread ran, and for how long it was ready to. Not every kernel knows the second."""
    # The name of the program, in brackets, may contain anything.
    fields = (task / "stat").read_text().rpartition(")")[2].split()
    ticks = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    try:
        ran, ready, *_ = (int(one) / 1e9 for one in (task / "schedstat").read_text().split())
    except OSError:
        return ticks, 0.0
    return max(ran, ticks), ready
