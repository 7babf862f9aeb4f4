"""``python -m benchmarks --profile``: where the time of one ``step`` call goes, by differences.

Each line is a difference of things that can be timed from outside: a call into the native module that does
nothing, ``send``, ``recv``, the same steps in a plain C++ loop. Only the whole of the stepping is the
engine's own measurement (``stats()["step_cost_ns"]``). It follows a drop faster than a rise, so it tends to be
low, and "the rest of recv", which is what the other lines leave, collects their errors. Then the same for worker
processes: where the time of a sync batch goes, and what more workers than cores cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console

import stepmill
from benchmarks import bare
from benchmarks.cells import MISSING, Table, time_of
from benchmarks.python_contestants import BareLoop, draw_actions
from benchmarks.python_envs import ENV_NAMES, Case
from benchmarks.python_parts import iterations
from benchmarks.timing import Effort
from stepmill.tools.measuring import machine
from stepmill.tools.measuring.peers import Workload
from stepmill.tools.measuring.runners import SEED

ROUNDS = 9
BLOCKS, CALLS = 100, 100  # in a round, of each function
EFFORT = Effort(repeats=5, seconds=0.05)


def run(console: Console) -> None:
    for num_envs in (1, 8, 64):
        _table(num_envs).print(console)
    sync_batch().print(console)
    more_workers().print(console)


def _table(num_envs: int) -> Table:
    cost = costs(num_envs)
    step = cost["step"]
    rows = [(name, time_of(ns), MISSING if ns is None else f"{ns / step:.0%}") for name, ns in parts_of(cost).items()]
    title = f"CartPole-v1, {num_envs} env{'s' * (num_envs > 1)}, one step call in the calling thread"
    return Table(title, ("", "time", "share"), rows)


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
    action = Workload.of("CartPole-v1").actions(num_envs)[0]
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


# ---- worker processes, all in CPU time: it tells much the same on a machine that does other things too ----

WORKER_ROUNDS = 15


# ---- a sync batch ----------------------------------------------------------------------------------

ENVS = 64
ENV_KINDS = ("busy", "frame")
BATCHES = 20


def sync_batch() -> Table:
    """Beside a plain loop over the same envs in this process.

    What a batch takes at least is the time of a worker's steps, and that of the caller, which sends before the workers
    begin and receives when they are done.
    """
    found = [_costs(Case(kind, ENVS, iterations())) for kind in ENV_KINDS]
    rows = [
        ("one step in a plain loop", *(time_of(one["loop"]) for one in found)),
        ("one step in a worker", *(time_of(one["worker"]) for one in found)),
        ("page faults of a worker in a step", *(f"{one['faults']:.2f}" for one in found)),
        ("steps of a worker in a batch", *(f"{one['steps']:.0f}" for one in found)),
        ("the caller sends a batch", *(time_of(one["send"]) for one in found)),
        ("the caller receives a batch", *(time_of(one["recv"]) for one in found)),
        ("of the plain loop's speed this leaves", *(f"{_share_left(one):.0%}" for one in found)),
    ]
    columns = ("", *(ENV_NAMES[kind] for kind in ENV_KINDS))
    return Table(f"{ENVS} Python envs in worker processes, CPU time", columns, rows)


def _share_left(one: dict[str, float]) -> float:
    return one["loop"] * one["steps"] / (one["worker"] * one["steps"] + one["send"] + one["recv"])


def _costs(case: Case) -> dict[str, float]:
    """Nanoseconds of each thing: the median of rounds, in which loop and pool take turns."""
    actions = draw_actions(case.num_envs)[0]
    loop = BareLoop(case.factories())
    loop.reset()
    with stepmill.make(case.factories(), num_envs=case.num_envs, seed=SEED, backend="process") as pool:
        pool.reset()
        workers = [worker["pid"] for worker in pool.stats()["workers"]]
        rounds = [_loop_costs(loop, actions) | _pool_costs(pool, workers, actions) for _ in range(WORKER_ROUNDS)]
    loop.close()
    found = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    return found | {"steps": case.num_envs / len(workers)}


def _loop_costs(loop: BareLoop, actions: Any) -> dict[str, float]:
    began = time.thread_time_ns()
    for _ in range(BATCHES // 4):
        loop.step(actions)
    return {"loop": (time.thread_time_ns() - began) / (BATCHES // 4) / len(actions)}


def _pool_costs(pool: Any, workers: list[int], actions: Any) -> dict[str, float]:
    clock = time.thread_time_ns
    used, faults = sum(map(_cpu_ns, workers)), sum(map(_faults, workers))
    send = recv = 0
    for _ in range(BATCHES):
        began = clock()
        pool.send(actions)
        sent = clock()
        result = pool.recv()  # and the one before is freed
        send, recv = send + sent - began, recv + clock() - sent
    del result
    steps = BATCHES * len(actions)
    return {
        "send": send / BATCHES,
        "recv": recv / BATCHES,
        "worker": (sum(map(_cpu_ns, workers)) - used) / steps,
        "faults": (sum(map(_faults, workers)) - faults) / steps,
    }


# ---- more workers than cores -----------------------------------------------------------------------

STEPS = 2000  # in a round


def more_workers() -> Table:
    """An async pool with two envs per core, which by default have a worker each, and the same on a worker per core."""
    cores = machine.cores()
    envs = {
        ENV_NAMES["endless"]: Case("endless", 2 * cores),
        ENV_NAMES["busy"]: Case("busy", 2 * cores, iterations()),
        "300 µs of work": Case("busy", 2 * cores, 3 * iterations()),
    }
    found = {name: [_async_costs(case, workers) for workers in (cores, 2 * cores)] for name, case in envs.items()}
    rows = [(name, time_of(few), time_of(many), f"{many / few - 1:+.0%}") for name, (few, many) in found.items()]
    title = f"{2 * cores} Python envs, {cores} at a time: CPU time of one step, the caller's counted in"
    return Table(title, ("", f"{cores} workers", f"{2 * cores} workers", "more"), rows)


def _async_costs(case: Case, workers: int) -> float:
    """Nanoseconds of all processes for a step: the median of rounds."""
    rows = case.num_envs // 2
    action = draw_actions(rows)[0]
    arguments: dict[str, Any] = {"num_envs": case.num_envs, "batch_size": rows, "num_workers": workers}
    with stepmill.make(case.factories(), **arguments, seed=SEED, backend="process") as pool:
        pids = [worker["pid"] for worker in pool.stats()["workers"]]
        pool.async_reset()
        found = []
        for _ in range(WORKER_ROUNDS):
            used = sum(map(_cpu_ns, pids)) + time.thread_time_ns()
            for _ in range(STEPS // rows):
                pool.send(action, pool.recv()[-1]["env_id"])
            found.append((sum(map(_cpu_ns, pids)) + time.thread_time_ns() - used) / (STEPS // rows * rows))
    return statistics.median(found)


# ---- what processes used ---------------------------------------------------------------------------


def _cpu_ns(pid: int) -> int:
    """The CPU time of a process, from its own clock (as ``clock_getcpuclockid`` numbers these)."""
    return time.clock_gettime_ns(~pid << 3 | 2)


def _faults(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[7])
