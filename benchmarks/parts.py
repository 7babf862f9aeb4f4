"""What is measured, one function per part. Each returns plain data for the JSON file."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks import (
    atari_parts,
    bare,
    cuda_parts,
    family_parts,
    manager_parts,
    mujoco_parts,
    own_parts,
    process_parts,
    python_parts,
    ray_costs,
    ray_parts,
    saving_parts,
    sb3_parts,
    tensor_parts,
    training_parts,
    waiting_parts,
    world_parts,
    xla_parts,
)
from benchmarks.timing import Effort, Log, interleaved
from stepmill.tools.measuring.machine import cores, up_to
from stepmill.tools.measuring.peers import (
    Workload,
    best_threads,
    envpool_has,
    envpool_pool,
    gymnasium_envs,
    stepmill_pool,
)
from stepmill.tools.measuring.runners import Contestant, steps_per_second

CARTPOLE = "CartPole-v1"
OTHER_ENVS = (
    "Pendulum-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
    "FrozenLake-v1",
    "FrozenLake8x8-v1",
    "CliffWalking-v1",
    "CliffWalkingSlippery-v1",
    "Taxi-v3",
    "Taxi-v4",
    "Blackjack-v1",
    "Catch-v0",
    "NChain-v0",
)


def sync(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """CartPole, all envs in each step, compared with EnvPool and Gymnasium."""
    return [_compare(CARTPOLE, n, None, effort, log, gymnasium=True, loops=True) for n in (1, 8, 64, 1024, 8192)]


def async_(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """CartPole, a batch is half of the envs."""
    return [_compare(CARTPOLE, n, n // 2, effort, log, loops=True) for n in (64, 1024)]


def envs(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Every other native env, 1024 of each."""
    return [_compare(env, 1024, None, effort, log) for env in OTHER_ENVS]


def bare_loop(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """CartPole in a plain C++ loop on one core: the most that one core can do."""
    out = []
    for n in (1, 64, 1024, 8192):
        log(f"bare loop, {n} env{'s' * (n > 1)}")
        result = bare.measure(n, effort)
        if result is None:
            log("no C++ compiler: left out")
            return []
        out.append(result)
    return out


def latency(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """The distribution of the times of single `step` calls."""
    out = []
    for n in (1, 64, 1024):
        log(f"latency of step, {n} env{'s' * (n > 1)}")
        runners = _contestants(CARTPOLE, n, None, effort, log)
        times: dict[str, list[np.ndarray]] = {name: [] for name in runners}
        for _ in range(effort.repeats):
            for name, runner in runners.items():
                rate = steps_per_second(runner, effort.search_s)
                calls = max(200, int(rate / runner.rows_per_call * effort.seconds))
                times[name].append(runner.latencies(calls))
        row: dict[str, Any] = {"env": CARTPOLE, "num_envs": n}
        for name, runner in runners.items():
            every = np.concatenate(times[name])
            row[name] = {**_percentiles(every), "calls": len(every), "num_threads": runner.num_threads}
        out.append(row)
        _close(runners)
    return out


def overhead(effort: Effort, log: Log) -> dict[str, Any]:
    """What one `step` of one env costs on top of the env itself."""
    log("cost of one step of one env")
    runners = _contestants(CARTPOLE, 1, None, effort, log)
    result: dict[str, Any] = {
        name: {"step_ns": 1e9 / timing["steps_per_s"]} for name, timing in interleaved(runners, effort).items()
    }
    names = list(runners)
    _close(runners)
    loop = bare.measure(1, effort)
    if loop is not None:
        result["env_ns"] = loop["env_ns"]
        for name in names:
            result[name]["above_env_ns"] = result[name]["step_ns"] - loop["env_ns"]
    return result


def scaling(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """CartPole by number of threads."""
    out = []
    for n in (1024, 8192, 65536):
        for threads in up_to(cores()):
            log(f"{threads} thread{'s' * (threads > 1)}, {n} envs")
            workload = Workload.of(CARTPOLE, n)
            runners = {"stepmill": stepmill_pool(workload, num_threads=threads)}
            if envpool_has(workload):
                runners["envpool"] = envpool_pool(workload, threads)
            out.append({"env": CARTPOLE, "num_envs": n, "num_threads": threads, **interleaved(runners, effort)})
            _close(runners)
    return out


def imports(effort: Effort, log: Log) -> dict[str, float | None]:
    """Seconds that `import` takes in a fresh interpreter; the median, each in turn."""
    modules = ("numpy", "gymnasium", "stepmill", "envpool")
    samples: dict[str, list[float]] = {module: [] for module in modules}
    log("import times")
    for _ in range(max(3, effort.repeats)):
        for module in modules:
            seconds = _import_time(module)
            if seconds is not None:
                samples[module].append(seconds)
    return {module: statistics.median(times) if times else None for module, times in samples.items()}


PARTS: dict[str, Callable[[Effort, Log], Any]] = {
    "bare": bare_loop,
    "sync": sync,
    "async": async_,
    "overhead": overhead,
    "latency": latency,
    "torch-output": tensor_parts.torch_output,
    "gpu-copies": tensor_parts.gpu_copies,
    "envs": envs,
    "own-envs": own_parts.own_envs,
    "mujoco": mujoco_parts.mujoco,
    "mujoco-memory": mujoco_parts.memory,
    "saving": saving_parts.saving,
    "atari": atari_parts.atari,
    "atari-start": atari_parts.start,
    "doom": family_parts.doom,
    "game-steps": family_parts.game_steps,
    "families": family_parts.families,
    "scaling": scaling,
    "imports": imports,
    **python_parts.PARTS,
    "start": process_parts.start,
    "forked-states": process_parts.forked_states,
    "managers": manager_parts.managers,
    "uneven": process_parts.uneven,
    "waiting": waiting_parts.waiting,
    "sessions": waiting_parts.sessions,
    "xla": xla_parts.xla,
    "worlds": world_parts.worlds,
    "cuda": cuda_parts.cuda,
    "ray": ray_parts.ray,
    "ray-sizing": ray_costs.sizing,
    "sb3": sb3_parts.sb3,
    "training": training_parts.training,
}


# ---- one comparison --------------------------------------------------------------------------------


def _compare(
    env: str,
    num_envs: int,
    batch_size: int | None,
    effort: Effort,
    log: Log,
    *,
    gymnasium: bool = False,
    loops: bool = False,
) -> dict[str, Any]:
    """Pools compared with each other and, for CartPole, with plain C++ loops on all cores: what the machine can do."""
    log(f"{env}, {num_envs} env{'s' * (num_envs > 1)}" + (f", batches of {batch_size}" if batch_size else ""))
    runners: dict[str, Any] = dict(_contestants(env, num_envs, batch_size, effort, log))
    if gymnasium:
        runners["gymnasium"] = gymnasium_envs("Sync", Workload.of(env, num_envs))
    if loops and bare.available():
        runners["meeting"] = bare.on_all_cores(num_envs, meet=True)
        runners["free"] = bare.on_all_cores(num_envs, meet=False)
    row: dict[str, Any] = {"env": env, "num_envs": num_envs, "batch_size": batch_size or num_envs}
    for name, result in interleaved(runners, effort).items():
        row[name] = {**result, "num_threads": runners[name].num_threads}
    if "envpool" in row:
        row["ratio"] = row["stepmill"]["steps_per_s"] / row["envpool"]["steps_per_s"]
    _close(runners)
    return row


def _contestants(env: str, num_envs: int, batch_size: int | None, effort: Effort, log: Log) -> dict[str, Contestant]:
    """With stepmill's defaults, and EnvPool's best number of threads."""
    workload = Workload.of(env, num_envs)
    runners = {"stepmill": stepmill_pool(workload, batch_size)}
    if envpool_has(workload):
        try:
            counts = _thread_counts(batch_size or num_envs)
            threads = best_threads(workload, counts, effort.search_s, batch_size, rounds=3)
            runners["envpool"] = envpool_pool(workload, threads, batch_size)
            log(f"  EnvPool is best with {threads} of {cores()} threads")
        except Exception as error:
            log(f"  EnvPool: left out, {error}")
    return runners


def _thread_counts(batch: int) -> list[int]:
    """All up to eight, then every fourth, up to the cores and to what a batch can use."""
    most = min(cores(), batch)
    return [n for n in range(1, most + 1) if n <= 8 or n % 4 == 0 or n == most]


def _percentiles(times_ns: np.ndarray) -> dict[str, float]:
    return {f"p{p:g}": float(np.percentile(times_ns, p)) for p in (50, 90, 99, 99.9)}


def _close(runners: dict[str, Any]) -> None:
    for runner in runners.values():
        runner.close()
    runners.clear()


def _import_time(module: str) -> float | None:
    code = (
        "import time; start = time.perf_counter()\n"
        f"try: import {module}\n"
        "except ModuleNotFoundError: print('missing')\n"
        "else: print(time.perf_counter() - start)"
    )
    output = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True).stdout
    word = output.split()[-1] if output.split() else "missing"
    return None if word == "missing" else float(word)
