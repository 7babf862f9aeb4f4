"""Envs of other packages, by their ids: stepmill beside Gymnasium's AsyncVectorEnv and plain loops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import stepmill
from benchmarks.cpu_time import interleaved_with_cpu_time
from benchmarks.python_contestants import BareLoop
from benchmarks.runners import ACTION_BATCHES, SEED, Contestant
from benchmarks.timing import Effort
from stepmill.errors import MissingPackageError
from stepmill.tools.measuring.machine import cores

ENVS = ("MiniGrid-Empty-8x8-v0",)
SIZES = (8, 64)

Log = Callable[[str], None]


def families(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second, all envs in each step, and the CPU time of a step. Envs without their package are left out."""
    out = []
    for env in ENVS:
        try:
            stepmill.make_spec(env)
        except MissingPackageError as error:
            log(f"left out: {error}")
            continue
        out += [_compare(env, num_envs, effort, log) for num_envs in SIZES]
    return out


def _compare(env: str, num_envs: int, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"{env}, {num_envs} envs")
    make_one = partial(gymnasium.make, env, disable_env_checker=True)
    actions = _draw_actions(make_one(), num_envs)
    share = max(1, num_envs // cores())  # as many as a worker of the pool has
    runners = {
        "stepmill": Contestant(stepmill.make(env, num_envs=num_envs, seed=SEED), actions),
        # Missions are texts, for which its shared memory has no place.
        "gymnasium_async": Contestant(
            gymnasium.vector.AsyncVectorEnv([make_one] * num_envs, shared_memory=False), actions
        ),
        "loop": Contestant(BareLoop([make_one] * share), [batch[:share] for batch in actions]),
    }
    row: dict[str, Any] = {"env": env, "num_envs": num_envs, "cores": cores()}
    try:
        return row | interleaved_with_cpu_time(runners, effort)
    finally:
        for runner in runners.values():
            runner.close()


def _draw_actions(env: Any, rows: int) -> list[np.ndarray]:
    generator = np.random.default_rng(SEED)
    return [generator.integers(0, env.action_space.n, rows) for _ in range(ACTION_BATCHES)]
