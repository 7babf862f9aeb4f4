"""Pools on Ray, on one machine: beside worker processes, beside loops that need no pool, and beside RLlib."""

from __future__ import annotations

import importlib.util
import math
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import stepmill
from benchmarks.python_envs import STEP_S as SHORT_S
from benchmarks.python_envs import Busy, calibrate
from benchmarks.timing import Calls, Effort, Log, interleaved
from stepmill import _native

ENVS = 64
STEP_S = 1e-3
SLOW_ROLLOUT = 16  # steps of envs that take a millisecond
CARTPOLES, CARTPOLE_STEPS = 1024, 128
RLLIB_ENVS, RLLIB_STEPS = 32, 4096  # of each runner
SEED = 1


def ray(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second: ours, what it is compared with, and the share of it that is the goal."""
    if importlib.util.find_spec("ray") is None:
        log("no Ray: left out")
        return []
    import ray as library

    cores = _native.available_cores()
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 would let everything else on the machine go first
    quiet = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
    library.init(address="local", num_cpus=2 * cores, **quiet)
    try:
        iterations = round(calibrate() * STEP_S / SHORT_S)
        rows = [
            *_beside_processes("sync", iterations, None, cores, effort, log),
            *_beside_processes("async", iterations, ENVS // 2, cores, effort, log),
            *_beside_loops(iterations, cores, effort, log),
            *_beside_threads("random", at_random, cores, effort, log),
            *_beside_threads("by the pole", by_the_pole, cores, effort, log),
        ]
        if importlib.util.find_spec("ray.rllib") is not None and importlib.util.find_spec("torch") is not None:
            rows.extend(_beside_rllib(cores, effort, log))
        return rows
    finally:
        library.shutdown()


# ---- policies ------------------------------------------------------------------------------------


def at_random(observation: np.ndarray, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
    return np.array([rng.integers(2) for rng in rngs])


def by_the_pole(observation: np.ndarray, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Costs as good as nothing, so that the pool shows."""
    return (observation[:, 2] > 0).astype(np.int64)


# ---- what is measured ----------------------------------------------------------------------------


def _steps(pool: Any, batch_size: int | None) -> Calls:
    actions = np.zeros(batch_size or ENVS, np.int64)
    if batch_size is None:
        pool.reset()
        return Calls(lambda: pool.step(actions), ENVS, pool.close)
    pool.async_reset()

    def step() -> None:
        pool.send(actions, pool.recv()[4]["env_id"])

    return Calls(step, batch_size, pool.close)


def _compared(
    case: str, actors: int, ours: Any, others: dict[str, tuple[Any, float | None]], effort: Effort
) -> list[dict[str, Any]]:
    """A row for each of the others: what it is called, what runs it, and the ratio that is the goal, if any."""
    runners = {"": ours} | {name: runner for name, (runner, _) in others.items()}
    results = interleaved(runners, effort)
    for runner in runners.values():
        runner.close()
    rows = []
    for name, (_, goal) in others.items():
        ratio = results[""]["steps_per_s"] / results[name]["steps_per_s"]
        compared = {"ours": results[""], "other": results[name], "others": name, "ratio": ratio, "goal": goal}
        rows.append({"case": case, "actors": actors, **compared})
    return rows


def _beside_processes(
    mode: str, iterations: int, batch_size: int | None, cores: int, effort: Effort, log: Log
) -> list[dict[str, Any]]:
    log(f"Ray beside worker processes, {mode}")
    task = partial(Busy, iterations)
    given = {"num_envs": ENVS, "batch_size": batch_size, "seed": SEED}
    ours = _steps(stepmill.make(task, backend=stepmill.Ray(num_actors=cores), num_workers=1, **given), batch_size)
    processes = _steps(stepmill.make(task, backend="process", num_workers=cores, **given), batch_size)
    return _compared(f"{ENVS} envs of 1 ms, {mode}", cores, ours, {"worker processes": (processes, 0.85)}, effort)


def _rollouts(pool: Any, policy: Any, steps: int) -> Calls:
    return Calls(lambda: pool.rollout(policy, steps), steps * pool.num_envs, pool.close)


def _beside_loops(iterations: int, cores: int, effort: Effort, log: Log) -> list[dict[str, Any]]:
    log("rollouts on Ray beside bare loops")
    task = partial(Busy, iterations)
    pool = stepmill.make(task, num_envs=ENVS, backend=stepmill.Ray(num_actors=cores), num_workers=1, seed=SEED)
    loops, that_meet = Loops(task, cores), Loops(task, cores)
    steps = SLOW_ROLLOUT * ENVS
    # What the slower core costs whoever waits for both: a rollout does, at its end.
    meeting = Calls(lambda: that_meet.make(steps // cores), steps, that_meet.close)
    others = {"bare loops": (loops, 0.9), "bare loops that meet at its end": (meeting, None)}
    ours = _rollouts(pool, at_random, SLOW_ROLLOUT)
    return _compared(f"rollout of {ENVS} envs of 1 ms", cores, ours, others, effort)


def _beside_threads(name: str, policy: Any, cores: int, effort: Effort, log: Log) -> list[dict[str, Any]]:
    actors = 2 * cores
    log(f"rollouts of CartPole on {actors} actors beside the pool of one process, policy {name}")
    given = {"num_envs": CARTPOLES, "seed": SEED}
    on_ray = stepmill.make("CartPole-v1", backend=stepmill.Ray(num_actors=actors), num_threads=1, **given)
    ours = _rollouts(on_ray, policy, CARTPOLE_STEPS)
    threads = _rollouts(stepmill.make("CartPole-v1", **given), policy, CARTPOLE_STEPS)
    case = f"rollout of {CARTPOLES:,} CartPoles, policy {name}"
    return _compared(case, actors, ours, {"threads of one process": (threads, 0.8)}, effort)


def _beside_rllib(cores: int, effort: Effort, log: Log) -> list[dict[str, Any]]:
    log("rollouts of CartPole beside RLlib's env runners")
    num_envs = RLLIB_ENVS * cores
    pool = stepmill.make(
        "CartPole-v1", num_envs=num_envs, backend=stepmill.Ray(num_actors=cores), num_threads=1, seed=SEED
    )
    ours = _rollouts(pool, at_random, RLLIB_STEPS // RLLIB_ENVS)
    case = f"{num_envs} CartPoles at random"
    return _compared(case, cores, ours, {"RLlib's env runners": (Runners(cores), 10.0)}, effort)


# ---- the others ----------------------------------------------------------------------------------


class Loops:
    """A process per core that steps an env of its own with the same policy."""

    def __init__(self, task: Callable[[], Any], cores: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipes = []
        self._processes = []
        for core in range(cores):
            ours, theirs = context.Pipe()
            self._pipes.append(ours)
            self._processes.append(context.Process(target=_loop, args=(theirs, task, core), daemon=True))
            self._processes[-1].start()

    def steps_per_second(self, seconds: float) -> float:
        """Of loops that wait for nobody."""
        return sum(steps / spent for steps, spent in self._loop(seconds, math.inf))

    def make(self, steps: int) -> None:
        """Each makes this many steps; returns when the last one has."""
        self._loop(math.inf, steps)

    def _loop(self, seconds: float, steps: float) -> list[tuple[int, float]]:
        for pipe in self._pipes:
            pipe.send((seconds, steps))
        return [pipe.recv() for pipe in self._pipes]

    def close(self) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()


def _loop(pipe: Any, task: Callable[[], Any], core: int) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    env = task()
    observation, _ = env.reset(seed=core)
    rngs = [np.random.default_rng((SEED, core))]
    ids = np.array([core])
    while (order := pipe.recv()) is not None:
        seconds, most = order
        steps, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < seconds and steps < most:
            observation, *_ = env.step(at_random(observation[None], ids, rngs)[0])
            steps += 1
        pipe.send((steps, spent))


class Runners:
    """RLlib's own env runners, one per core, that act at random."""

    def __init__(self, cores: int) -> None:
        import ray as library
        from ray.rllib.algorithms.ppo import PPOConfig
        from ray.rllib.env.single_agent_env_runner import SingleAgentEnvRunner

        config = PPOConfig().environment("CartPole-v1").env_runners(num_envs_per_env_runner=RLLIB_ENVS)
        self._library = library
        remote = library.remote(num_cpus=1)(SingleAgentEnvRunner)
        self._runners = [remote.remote(config=config, worker_index=1 + core) for core in range(cores)]

        self.rows_per_call = RLLIB_STEPS * cores

    def run(self, calls: int) -> None:
        for _ in range(calls):
            asked = [one.sample.remote(num_timesteps=RLLIB_STEPS, random_actions=True) for one in self._runners]
            self._library.get(asked)

    def close(self) -> None:
        for one in self._runners:
            self._library.kill(one)
