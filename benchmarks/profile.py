"""``python -m benchmarks --profile``: where the time of one ``step`` call goes, by differences.

Each line is a difference of things that can be timed from outside: a call into the native module that does
nothing, ``send``, ``recv``, the same steps in a plain C++ loop. Only the whole of the stepping is the
engine's own measurement (``stats()["step_cost_ns"]``). It follows a drop faster than a rise, so it tends to be
low, and "the rest of recv", which is what the other lines leave, collects their errors. ``worker_profile`` does the
same for worker processes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

import stepmill
from benchmarks import bare, worker_profile
from benchmarks.runners import SEED
from benchmarks.tables import MISSING, Table, time_of
from benchmarks.timing import Effort
from stepmill.tools.measuring.peers import Subject

ROUNDS = 9
BLOCKS, CALLS = 100, 100  # in a round, of each function
EFFORT = Effort(repeats=5, seconds=0.05)


def run(console: Console) -> None:
    for num_envs in (1, 8, 64):
        _table(num_envs).print(console)
    for table in worker_profile.tables():
        table.print(console)


def _table(num_envs: int) -> Table:
    cost = costs(num_envs)
    step = cost["step"]
    rows = [(name, time_of(ns), MISSING if ns is None else f"{ns / step:.0%}") for name, ns in parts_of(cost).items()]
    title = f"CartPole-v1, {num_envs} env{'s' * (num_envs > 1)}, one step call in the calling thread"
    return Table("profile", title, ("", "time", "share"), rows)


def parts_of(cost: dict[str, Any]) -> dict[str, float | None]:
    """One step, taken apart."""
    return {
        "one step": cost["step"],
        "  the method of the Python class": cost["step"] - cost["core_step"],
        "  into the native module and back": cost["empty"],
        "  reading and checking the action, queueing": cost["send"] - cost["empty"],
        "  stepping, autoreset, writing rows": cost["stepping"],
        "  the rest of recv (what the others leave)": cost["recv"] - cost["empty"] - cost["stepping"],
        "  step against send and recv": cost["core_step"] - (cost["send"] + cost["recv"] - cost["empty"]),
        "for comparison: these steps in a bare C++ loop": cost["bare"],
    }


def costs(num_envs: int) -> dict[str, Any]:
    """Nanoseconds of each thing that can be timed by itself."""
    action = Subject.of("CartPole-v1").actions(num_envs)[0]
    with stepmill.make("CartPole-v1", num_envs=num_envs, seed=SEED, backend="inline") as pool:
        pool.reset()
        core: Any = pool._engine  # the native pool under the view

        def step(calls: int) -> None:
            method = pool.step
            for _ in range(calls):
                result = method(action)
            del result

        def core_step(calls: int) -> None:
            method = core.step
            for _ in range(calls):
                result = method(action)
            del result

        def empty(calls: int) -> None:
            method = core.check_usable
            for _ in range(calls):
                method()

        def send_and_recv(calls: int) -> None:
            send, recv = core.send, core.recv
            for _ in range(calls):
                send(action)
                result = recv()
            del result

        functions = (step, core_step, empty, send_and_recv)
        found: dict[str, Any] = {}
        for _ in range(ROUNDS):
            for function in functions:
                cost = _least(function)
                found[function.__name__] = min(cost, found.get(function.__name__, cost))
        found["send"] = _send_alone(core, action)
        found["stepping"] = pool.stats()["step_cost_ns"] * num_envs
    found["recv"] = found["send_and_recv"] - found["send"]
    loop = bare.measure(num_envs, EFFORT)
    found["bare"] = None if loop is None else loop["env_ns"] * num_envs
    return found


def _least(function: Callable[[int], None]) -> float:
    """Nanoseconds of a call in the fastest of many short blocks: the machine may do other things too."""
    clock = time.perf_counter_ns
    least = float("inf")
    for _ in range(BLOCKS):
        start = clock()
        function(CALLS)
        least = min(least, (clock() - start) / CALLS)
    return least


def _send_alone(core: Any, action: Any) -> float:
    """``send`` needs a ``recv`` after it, so both are called and only ``send`` is timed; the median."""
    clock = time.perf_counter_ns
    times = []
    clocks = []
    for _ in range(20000):
        start = clock()
        core.send(action)
        end = clock()
        core.recv()
        times.append(end - start)
        start = clock()
        clocks.append(clock() - start)
    return statistics.median(times) - statistics.median(clocks)
