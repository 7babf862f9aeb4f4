"""MuJoCo tasks: stepmill beside EnvPool, Gymnasium's vector envs, MuJoCo's own batches, and plain C++ loops."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np

from benchmarks import bare
from benchmarks.timing import Effort, Log, interleaved
from stepmill.sources.find import find_source
from stepmill.sources.source import NativeSource
from stepmill.tools.measuring.machine import cores
from stepmill.tools.measuring.peers import Workload, envpool_has, envpool_pool, gymnasium_envs, stepmill_pool
from stepmill.tools.measuring.runners import ACTION_BATCHES

ENVS = ("Ant-v5", "HalfCheetah-v5", "Humanoid-v5", "Hopper-v5")
SYNC, ASYNC = (8, 64), ((128, 64),)


def mujoco(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second, all envs in each step and then those that are done first."""
    sizes = [*((n, None) for n in SYNC), *ASYNC]
    return [_compare(env, n, batch_size, effort, log) for env in ENVS for n, batch_size in sizes]


def _compare(env: str, num_envs: int, batch_size: int | None, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"{env}, {num_envs} envs" + (f", batches of {batch_size}" if batch_size else ""))
    workload = Workload.of(env, num_envs)
    runners: dict[str, Any] = {"stepmill": stepmill_pool(workload, batch_size)}
    if envpool_has(workload):
        runners["envpool"] = envpool_pool(workload, min(batch_size or num_envs, cores()), batch_size)
    if batch_size is None:
        runners["gymnasium"] = gymnasium_envs("Sync", workload)
        runners["gymnasium_async"] = gymnasium_envs("Async", workload)
        if _has_batch():
            runners["mujoco_batch"] = MujocoBatch(env, num_envs)
    if bare.available():
        if batch_size is None:
            runners["meeting"] = MujocoLoops(env, num_envs, meet=True)
        runners["free"] = MujocoLoops(env, num_envs, meet=False)
    row: dict[str, Any] = {"env": env, "num_envs": num_envs, "batch_size": batch_size or num_envs}
    try:
        for name, result in interleaved(runners, effort).items():
            row[name] = {**result, "num_threads": runners[name].num_threads}
    finally:
        for runner in runners.values():
            runner.close()
    return row


def _has_batch() -> bool:
    try:
        import mujoco.batch  # noqa: F401
    except ImportError:
        return False
    return True


def memory(_: Effort, log: Log) -> list[dict[str, Any]]:
    """The memory that 1,024 Ants take, each contestant in a process of its own."""
    out = []
    for name, code in MEMORY.items():
        if name == "envpool" and not envpool_has(Workload.of(MEMORY_ENV)):
            continue
        log(f"memory of {MEMORY_COUNT} {MEMORY_ENV}, {name}")
        made = code.format(env=MEMORY_ENV, n=MEMORY_COUNT)
        program = MEMORY_PROGRAM.format(make=made, env=MEMORY_ENV, n=MEMORY_COUNT)
        command = [sys.executable, "-W", "ignore", "-c", program]
        output = subprocess.run(command, capture_output=True, text=True, check=True)
        out.append({"name": name, "env": MEMORY_ENV, "num_envs": MEMORY_COUNT, "bytes": int(output.stdout.split()[-1])})
    return out


MEMORY_ENV, MEMORY_COUNT = "Ant-v5", 1024
MEMORY = {
    "stepmill": "stepmill.make('{env}', num_envs={n})",
    "envpool": "__import__('envpool').make_gymnasium('{env}', num_envs={n})",
    "gymnasium": "gymnasium.make_vec('{env}', num_envs={n}, vectorization_mode='sync')",
}
# A smaller pool first, so that what the first one of a process brings is not counted.
MEMORY_PROGRAM = """
import gymnasium, stepmill
stepmill.make("{env}", num_envs=1).close()
def resident():
    with open("/proc/self/smaps_rollup") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("Rss:"))
before = resident()
envs = {make}
envs.reset()
import numpy
for seed in range(20):
    envs.step(numpy.random.default_rng(seed).uniform(-1, 1, ({n}, 8)).astype(numpy.float32))
print(resident() - before)
"""


class MujocoBatch:
    """``mujoco.batch``: physics alone, without reward, observation, mj_rnePostConstraint and the ends of episodes."""

    def __init__(self, env: str, num_envs: int) -> None:
        import mujoco.batch

        task = gymnasium.make(env).unwrapped
        self.num_threads = cores()
        self.rows_per_call = num_envs
        self._batch = mujoco.batch.Batch(task.model, num_envs, cores())
        self._frames = task.frame_skip
        self._ctrl = self._batch.bind("ctrl")
        self._shown = [self._batch.bind(name) for name in ("qpos", "qvel")]
        self._actions = Workload.of(env).actions(num_envs)
        self._next = 0

    def run(self, calls: int) -> None:
        for _ in range(calls):
            self._ctrl[:] = self._actions[self._next % ACTION_BATCHES]
            self._next += 1
            self._batch.step(nstep=self._frames)

    def close(self) -> None:
        """Its threads end with it."""
        del self._batch


class MujocoLoops:
    """Our native tasks in plain C++ loops on all cores, which ``meet`` after each round or run freely."""

    def __init__(self, env: str, num_envs: int, *, meet: bool) -> None:
        self.num_threads = min(cores(), num_envs)
        self._env, self._num_envs, self._meet = env, num_envs, meet
        source = find_source(env, num_envs, {}, None, "thread", None, 1)
        assert isinstance(source, NativeSource)
        assert source.simulators is not None
        self._simulators = [source.simulators.build(i) for i in range(num_envs)]
        self._texts = [_text(one.values()).encode() for one in self._simulators]
        self._actions = np.ascontiguousarray(np.stack(Workload.of(env).actions(num_envs)), np.float32)
        self._run = ctypes.CDLL(bare.mujoco_library()).mujoco_loops
        self._run.restype = ctypes.c_double

    def steps_per_second(self, seconds: float) -> float:
        import mujoco

        for one in self._simulators:  # a task takes the pose in which it finds its state for the initial one
            mujoco.mj_resetData(one.model, one.data)
        rate: float = self._run(
            self._env.encode(),
            (ctypes.c_char_p * self._num_envs)(*self._texts),
            self._num_envs,
            self._actions.ctypes.data_as(ctypes.c_void_p),
            self.num_threads,
            int(self._meet),
            ctypes.c_double(seconds),
        )
        return rate

    def close(self) -> None:
        """Nothing runs between two measurements."""


def _text(values: Any) -> str:
    """The values of a simulator as ``mujoco_loop.cpp`` reads them."""
    lines = []
    for key, value in values.items():
        if isinstance(value, bool):
            lines.append(f"bool {key} {int(value)}")
        elif isinstance(value, int):
            lines.append(f"int {key} {value}")
        elif isinstance(value, float):
            lines.append(f"real {key} {value!r}")
        elif isinstance(value, str):
            lines.append(f"text {key} {value}")
        else:
            lines.append(f"reals {key} " + " ".join(repr(float(x)) for x in value))
    return "\n".join(lines)
