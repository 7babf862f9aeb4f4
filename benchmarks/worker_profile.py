"""``python -m benchmarks --profile``, of worker processes: where the time of a sync batch goes, and what more workers
than cores cost.

All of it is CPU time, which tells much the same on a machine that does other things too.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import stepmill
from benchmarks.python_contestants import BareLoop, draw_actions
from benchmarks.python_envs import ENV_NAMES, Case
from benchmarks.python_parts import iterations
from benchmarks.runners import SEED
from benchmarks.tables import Table, time_of
from stepmill.tools.measuring import machine

ROUNDS = 15


def tables() -> list[Table]:
    return [sync_batch(), more_workers()]


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
    return Table("worker-profile", f"{ENVS} Python envs in worker processes, CPU time", columns, rows)


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
        rounds = [_loop_costs(loop, actions) | _pool_costs(pool, workers, actions) for _ in range(ROUNDS)]
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
    return Table("more-workers", title, ("", f"{cores} workers", f"{2 * cores} workers", "more"), rows)


def _async_costs(case: Case, workers: int) -> float:
    """Nanoseconds of all processes for a step: the median of rounds."""
    rows = case.num_envs // 2
    action = draw_actions(rows)[0]
    arguments: dict[str, Any] = {"num_envs": case.num_envs, "batch_size": rows, "num_workers": workers}
    with stepmill.make(case.factories(), **arguments, seed=SEED, backend="process") as pool:
        pids = [worker["pid"] for worker in pool.stats()["workers"]]
        pool.async_reset()
        found = []
        for _ in range(ROUNDS):
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
