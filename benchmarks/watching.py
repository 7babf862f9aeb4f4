"""``python -m benchmarks.watching``: what it costs the caller that somebody watches a pool.

Three cases in turn: not watched, watched by ``pool.watch()`` without a browser, and with one that asks four times per
second for pictures of 16 envs.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

import stepmill
from stepmill.tools.watching.report import Question

POOLS = [("CartPole-v1", 1), ("CartPole-v1", 64), ("CartPole-v1", 4096), ("gymnasium:CartPole-v1", 8)]
ROUNDS = 15
SECONDS = 0.3


def main() -> None:
    table = Table(title="Microseconds per step() of the whole pool: medians, and what watching adds")
    for name in ("pool", "envs", "not watched", "watched", "with a browser"):
        table.add_column(name, justify="left" if name == "pool" else "right")
    for id, num_envs in POOLS:
        with stepmill.make(id, num_envs=num_envs, render_mode="rgb_array") as pool:
            bare, watched, shown = measure(pool)
        row = [f"{id}, {pool.backend}", f"{num_envs:,}", f"{bare:,.2f}"]
        table.add_row(*row, *(f"{one:,.2f} (+{100 * (one / bare - 1):.1f} %)" for one in (watched, shown)))
    Console(highlight=False).print(table)


def measure(pool: Any) -> list[float]:
    """Of the three cases, interleaved."""
    pool.reset()
    cases: list[list[float]] = [[], [], []]
    for _ in range(ROUNDS):
        cases[0].append(step_us(pool))
        with pool.watch(open_browser=False) as page:
            cases[1].append(step_us(pool))
            with browser(page):
                cases[2].append(step_us(pool))
    return [statistics.median(case) for case in cases]


def step_us(pool: Any) -> float:
    action, step = pool.action_space.sample(), pool.step
    calls, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < SECONDS:
        for _ in range(10):
            step(action)
        calls += 10
    return passed / calls * 1e6


@contextlib.contextmanager
def browser(page: Any) -> Iterator[None]:
    """Asks as the page does, in another thread; without the cost of a real one, which has cores of its own or not."""
    reporter, ended = page._server.reporter, threading.Event()

    def ask() -> None:
        while not ended.wait(0.25):
            reporter.answer(Question("benchmark", 0, 16, None, 0, 0, 15))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


if __name__ == "__main__":
    main()
