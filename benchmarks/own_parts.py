"""Envs of one's own, in each language and as envs of Gymnasium: CartPole, and a coin, which does next to nothing.

All do the same operations. That of CartPole in C steps many envs in one call, and so does the one that is built in; the
others step one env after another.
"""

# ruff: noqa: RUF012
from __future__ import annotations

import math
import runpy
import shutil
import subprocess
import tempfile
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
_EXAMPLES = Path(__file__).resolve().parent.parent / "examples" / "own_envs"
# As the files themselves say it.
_BUILD = {
    ".c": ["cc", "-O3", "-ffp-contract=off", "-shared", "-fPIC", f"-I{stepmill.get_include()}", "-lm"],
    ".rs": ["rustc", "--edition", "2021", "-O", "--crate-type", "cdylib"],
}


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


def own_envs(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second of each, and what share of the C++ class Numba's code reaches."""
    coin = runpy.run_path(str(_EXAMPLES / "coin.py"))["Coin"]
    with tempfile.TemporaryDirectory() as folder:
        cart_poles: dict[str, Any] = {
            "c++": str(_EXAMPLES / "cart_pole.h"),
            "c": _built("cart_pole.c", folder),
            "numba": CartPole,
        }
        coins = {"c++": str(_EXAMPLES / "coin.h"), "c": _built("coin.c", folder), "rust": _built("coin.rs", folder)}
        return [
            _measured("CartPole", cart_poles, lambda: gymnasium.make("CartPole-v1"), effort, log),
            _measured("Coin", coins, lambda: gymnasium.wrappers.TimeLimit(coin(), 500), effort, log),
        ]


def _measured(name: str, ways: dict[str, Any], official: Any, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"own envs, {_COUNT} of {name}")
    runners: dict[str, Calls] = {}
    for way, task in ways.items():
        if task is None:
            log(f"  {way}: left out, there is no compiler")
            continue
        try:
            runners[way] = _runner(stepmill.make(task, num_envs=_COUNT, max_episode_steps=500))
        except MissingPackageError as error:
            log(f"  {way}: left out, {error}")
    runners["gymnasium"] = _runner(gymnasium.vector.SyncVectorEnv([official] * _COUNT))
    row: dict[str, Any] = {"env": name, "num_envs": _COUNT, **interleaved(runners, effort)}
    if {"numba", "c++"} <= row.keys():
        row["share"] = row["numba"]["steps_per_s"] / row["c++"]["steps_per_s"]
    for runner in runners.values():
        runner.close()
    return row


def _built(source: str, folder: str) -> str | None:
    """The library of an example; None without its compiler."""
    command = _BUILD[Path(source).suffix]
    if shutil.which(command[0]) is None:
        return None
    library = Path(folder) / f"lib{source}.so"
    subprocess.run([*command, str(_EXAMPLES / source), "-o", str(library)], check=True)
    return str(library)


def _runner(pool: Any) -> Calls:
    pool.reset(seed=42)
    actions = np.random.default_rng(42).integers(0, 2, _COUNT)
    return Calls(lambda: pool.step(actions), _COUNT, pool.close)
