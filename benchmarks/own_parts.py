"""An env of one's own: CartPole as one C++ class, as a ``stepmill.jit`` class, and as Gymnasium's env.

The two of ours do the same operations, one env after the other; the CartPole that is built in steps many at once.
"""

# ruff: noqa: RUF012
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import stepmill
from benchmarks.timing import Calls, Effort, Log, interleaved
from stepmill.errors import MissingPackageError

_BOUNDS = np.array([4.8, np.inf, 24 * math.pi / 180, np.inf], np.float32)
_COUNT = 1024


@stepmill.jit
class CartPole:
    observation_space = spaces.Box(-_BOUNDS, _BOUNDS)
    action_space = spaces.Discrete(2)
    state = [("x", np.float64), ("x_dot", np.float64), ("theta", np.float64), ("theta_dot", np.float64)]

    def reset(self, random: Any) -> None:
        self.x = random.uniform(-0.05, 0.05)
        self.x_dot = random.uniform(-0.05, 0.05)
        self.theta = random.uniform(-0.05, 0.05)
        self.theta_dot = random.uniform(-0.05, 0.05)

    def step(self, action: Any, random: Any) -> tuple[float, bool, bool]:
        force = 10.0 if action == 1 else -10.0
        cosine, sine = math.cos(self.theta), math.sin(self.theta)
        temp = (force + 0.05 * (self.theta_dot * self.theta_dot) * sine) / 1.1
        theta_acc = (9.8 * sine - cosine * temp) / (0.5 * (4.0 / 3.0 - 0.1 * (cosine * cosine) / 1.1))
        x_acc = temp - 0.05 * theta_acc * cosine / 1.1
        self.x += 0.02 * self.x_dot
        self.x_dot += 0.02 * x_acc
        self.theta += 0.02 * self.theta_dot
        self.theta_dot += 0.02 * theta_acc
        limit = 12 * 2 * math.pi / 360
        return 1.0, self.x < -2.4 or self.x > 2.4 or self.theta < -limit or self.theta > limit, False

    def observe(self, observation: Any) -> None:
        observation[0] = self.x
        observation[1] = self.x_dot
        observation[2] = self.theta
        observation[3] = self.theta_dot


_WAYS = {"c++": str(Path(__file__).with_name("cart_pole.h")), "numba": CartPole}


def own_envs(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second of each, and what share of the C++ class Numba's code reaches."""
    log(f"own envs, {_COUNT} CartPoles")
    runners: dict[str, Calls] = {}
    for name, task in _WAYS.items():
        try:
            runners[name] = _runner(stepmill.make(task, num_envs=_COUNT, max_episode_steps=500))
        except MissingPackageError as error:
            log(f"  {name}: left out, {error}")
    runners["gymnasium"] = _runner(
        gymnasium.make_vec("CartPole-v1", num_envs=_COUNT, vectorization_mode="sync")  # its SyncVectorEnv
    )
    row: dict[str, Any] = {"env": "CartPole", "num_envs": _COUNT, **interleaved(runners, effort)}
    if _WAYS.keys() <= row.keys():
        row["share"] = row["numba"]["steps_per_s"] / row["c++"]["steps_per_s"]
    for runner in runners.values():
        runner.close()
    return [row]


def _runner(pool: Any) -> Calls:
    pool.reset(seed=42)
    actions = np.random.default_rng(42).integers(0, 2, _COUNT)
    return Calls(lambda: pool.step(actions), _COUNT, pool.close)
