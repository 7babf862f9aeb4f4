"""Reading the clock: interleaved, repeated, and with as little of our own work inside as possible."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

BLOCK_S = 0.002  # the clock is read about this often: its own cost must not show


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``repeats`` rounds, ``seconds`` for each contestant in each."""

    repeats: int
    seconds: float


class Runner(Protocol):
    """Something that makes calls, each of which steps ``rows_per_call`` envs."""

    rows_per_call: int

    def run(self, calls: int) -> None: ...


def steps_per_second(runner: Runner, seconds: float) -> float:
    """Steps of single envs per second, after a warm-up of a fifth of the time."""
    block = _block(runner, seconds / 5)
    clock = time.perf_counter
    calls = 0
    start = now = clock()
    while now - start < seconds:
        runner.run(block)
        calls += block
        now = clock()
    return calls * runner.rows_per_call / (now - start)


def _block(runner: Runner, seconds: float) -> int:
    """Warms up, and finds how many calls take about ``BLOCK_S``."""
    clock = time.perf_counter
    block = 1
    end = clock() + seconds
    while True:
        start = clock()
        runner.run(block)
        now = clock()
        if now - start < BLOCK_S / 2 and block < 1 << 16:
            block *= 2
        elif now >= end:
            return block


def sample(runner: Any, seconds: float) -> float:
    """Steps per second, by the clock of a program that measures itself, or by ours."""
    own_clock = getattr(runner, "steps_per_second", None)
    return float(own_clock(seconds)) if own_clock else steps_per_second(runner, seconds)


def interleaved(runners: Mapping[str, Any], effort: Effort) -> dict[str, dict[str, Any]]:
    """The median of one sample in each round, so that a disturbance hits all of them alike."""
    samples: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(effort.repeats):
        for name, runner in runners.items():
            samples[name].append(sample(runner, effort.seconds))
    return {name: {"steps_per_s": statistics.median(all_), "samples": all_} for name, all_ in samples.items()}
