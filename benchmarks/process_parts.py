"""Worker processes: how long a pool takes to start, what one slow env costs its neighbours, and states by fork.

Starting is from the call of ``make`` to the observations of the first reset, in a program that runs already. Cold, the
process that starts the workers has to be started itself. Warm, it is still there from the pool before.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import gymnasium
import numpy as np

import stepmill
from benchmarks.python_envs import STEP_S, Busy
from benchmarks.python_parts import iterations
from benchmarks.timing import Effort, Log
from stepmill.managers import SubprocessEnvManager
from stepmill.testing import end_servers

ENV = "CartPole-v1"
SIZES = (2, 16, 64)


def start(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Seconds for each number of envs; the median, each in turn."""
    out = []
    for num_envs in SIZES:
        log(f"start of {num_envs} {ENV}")
        samples: dict[str, list[float]] = {"cold": [], "warm": [], "gymnasium_async": []}
        for _ in range(max(3, effort.repeats)):
            end_servers()
            samples["cold"].append(_seconds_of(partial(_pool, num_envs)))
            samples["warm"].append(_seconds_of(partial(_pool, num_envs)))
            samples["gymnasium_async"].append(_seconds_of(partial(_gymnasium, num_envs)))
        row = {name: {"seconds": statistics.median(times), "samples": times} for name, times in samples.items()}
        out.append({"env": ENV, "num_envs": num_envs, **row})
    end_servers()
    return out


def forked_states(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Medians: a fork by the system, a save, what the sleeping process has alone right after it, and a restore.

    The env steps in between.
    """
    out = []
    for holds in HELD:
        log(f"states by fork, {holds}")
        with stepmill.make(Holding, num_envs=1, backend="process", num_workers=1, holds=holds) as pool:
            pool.reset()
            forks: list[float] = []
            saves, sizes, restores = [], [], []
            times = 10 * max(3, effort.repeats)
            for _ in range(times):
                pool.step(np.zeros(1, int))
                forks += pool.apply(_seconds_of_fork)
                pool.step(np.zeros(1, int))
                begin = time.perf_counter()
                states = pool.save()
                saves.append(time.perf_counter() - begin)
                sizes.append(_private_bytes(pool.stats()["clones"][-1]["pid"]))
            for _ in range(times):
                begin = time.perf_counter()
                pool.restore(states)
                restores.append(time.perf_counter() - begin)
                pool.step(np.zeros(1, int))
        measured = {"fork_s": forks, "save_s": saves, "private_bytes": sizes, "restore_s": restores}
        out.append({"holds": holds, **{name: statistics.median(values) for name, values in measured.items()}})
    return out


def _seconds_of_fork(_: Any) -> float:
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    seconds = time.perf_counter() - begin
    os.waitpid(pid, 0)
    return seconds


def _private_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as lines:
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private"))


HELD: dict[str, Callable[[], Any]] = {
    "nothing of its own": lambda: None,
    "100 MB in 10 arrays": lambda: [np.random.random(1_250_000) for _ in range(10)],
    "100 MB in 100 arrays": lambda: [np.random.random(125_000) for _ in range(100)],
    "100 MB of small objects": lambda: [{"a": i, "b": (i, i + 1)} for i in range(330_000)],
}


class Holding(gymnasium.Env[Any, Any]):
    """An env that holds some memory, and has no ``get_state()``."""

    observation_space = gymnasium.spaces.Box(0, 1, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, holds: str) -> None:
        self.held = HELD[holds]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(4, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(4, np.float32), 0.0, False, False, {}


def _pool(num_envs: int) -> Any:
    return stepmill.make(f"gymnasium:{ENV}", num_envs=num_envs, backend="process")


def _gymnasium(num_envs: int) -> Any:
    return gymnasium.vector.AsyncVectorEnv([partial(gymnasium.make, ENV)] * num_envs)


def _seconds_of(make: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    envs = make()
    envs.reset()
    seconds = time.perf_counter() - begin
    envs.close()
    return seconds


# ---- one slow env ----------------------------------------------------------------------------------

# Workers step envs one at a time, so an env that shares a worker with the slow one waits for it: with two workers for
# all four, and not by default, where each has one of its own. A count of steps for each env shows that; steps per
# second of all together would hide it.

ENVS = 4
SLOW_S, FAST_S = 50e-3, 0.5e-3  # env 0, and the others
WORKERS = {"default": None, "two": 2}
Factories = list[Callable[[], Any]]


def uneven(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps of each env, by how the slow one spends its time, by interface and by number of workers."""
    out = []
    for how in ("sleeps", "works"):
        for workers, count in WORKERS.items():
            log(f"{ENVS} envs of which one {how} {SLOW_S / FAST_S:.0f} times longer, workers: {workers}")
            runners: dict[str, Counted] = {
                "async pool": CountedPool(_envs(how), count),
                "async manager": CountedManager(_envs(how), count),
            }
            steps = {name: np.zeros(ENVS, np.int64) for name in runners}
            seconds = dict.fromkeys(runners, 0.0)
            try:
                for _ in range(effort.repeats):
                    for name, runner in runners.items():
                        seconds[name] += _count(runner, steps[name], effort.seconds)
            finally:
                for runner in runners.values():
                    runner.close()
            for name in runners:
                row = {"name": name, "slow_one": how, "workers": workers, "steps": steps[name].tolist()}
                out.append({**row, "seconds": seconds[name]})
    return out


class Counted(Protocol):
    """Something that steps what is ready, and says which envs that were."""

    def step(self) -> Any: ...
    def close(self) -> None: ...


class CountedPool:
    """Receives one result at a time, whichever comes first, and sends that env on."""

    def __init__(self, envs: Factories, workers: int | None) -> None:
        self._pool = stepmill.make(envs, num_envs=ENVS, batch_size=1, backend="process", num_workers=workers, seed=0)
        self._pool.async_reset()
        self._action = np.zeros(1, np.int64)
        self.close = self._pool.close

    def step(self) -> Any:
        ids = self._pool.recv()[-1]["env_id"]
        self._pool.send(self._action, ids)
        return ids


class CountedManager:
    """Steps what is ready, as a collector does."""

    def __init__(self, envs: Factories, workers: int | None) -> None:
        self._manager = SubprocessEnvManager(envs, num_workers=workers)
        self._manager.seed(0)
        self._manager.launch()
        self.close = self._manager.close

    def step(self) -> Any:
        return list(self._manager.step(dict.fromkeys(self._manager.ready_obs, 0)))


def _count(runner: Counted, steps: np.ndarray, seconds: float) -> float:
    """Adds to ``steps`` what each env did in about ``seconds``; returns how long it took."""
    start = now = time.perf_counter()
    while now - start < seconds:
        steps[runner.step()] += 1
        now = time.perf_counter()
    return now - start


def _envs(how: str) -> Factories:
    """Env 0 is the slow one. By waiting, as for a simulator elsewhere, or by work of its own."""

    def env(seconds: float) -> Callable[[], Any]:
        return partial(Busy, 0, seconds) if how == "sleeps" else partial(Busy, round(iterations() * seconds / STEP_S))

    return [env(SLOW_S), *[env(FAST_S)] * (ENVS - 1)]
