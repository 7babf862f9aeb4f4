"""What a pool of tensors costs on top of one of numpy's arrays: the same envs and actions, only ``output`` differs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import stepmill
from benchmarks.runners import ACTION_BATCHES, SEED, Contestant
from benchmarks.timing import Effort, interleaved
from stepmill.tools.measuring.peers import Subject, stepmill_pool

CARTPOLE = "CartPole-v1"
FRAMES = "frames"
CASES = ((CARTPOLE, 1), (CARTPOLE, 64), (CARTPOLE, 1024), (FRAMES, 16))
TENSORS = 4  # of a step: observation, reward, terminated, truncated
LIBRARIES = ("torch", "jax")

Log = Callable[[str], None]


class Frames(gymnasium.Env[np.ndarray, int]):
    """Four images of 84 by 84, and nothing else: any real game would hide what tensors cost."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(2)
    frames = np.zeros((4, 84, 84), np.uint8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return self.frames, {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self.frames, 1.0, False, False, {}


def torch_output(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Nanoseconds per tensor handed out, by number of envs."""
    outputs = [name for name in LIBRARIES if importlib.util.find_spec(name) is not None]
    if "torch" not in outputs:
        log("no torch: left out")
        return []
    return [_compare(env, num_envs, outputs, effort, log) for env, num_envs in CASES]


def _compare(env: str, num_envs: int, outputs: list[str], effort: Effort, log: Log) -> dict[str, Any]:
    log(f"tensors of {env}, {num_envs} env{'s' * (num_envs > 1)}")
    runners = {output: _runner(env, num_envs, output) for output in ("numpy", *outputs)}
    row: dict[str, Any] = {"env": env, "num_envs": num_envs}
    for output, result in interleaved(runners, effort).items():
        row[output] = {**result, "step_ns": 1e9 * num_envs / result["steps_per_s"]}
    for output in outputs:
        row[output]["tensor_ns"] = (row[output]["step_ns"] - row["numpy"]["step_ns"]) / TENSORS
    for runner in runners.values():
        runner.close()
    return row


def _runner(env: str, num_envs: int, output: str) -> Contestant:
    if env != FRAMES:
        return stepmill_pool(Subject.of(env, num_envs), output=output)
    pool = stepmill.make(Frames, num_envs=num_envs, backend="inline", seed=SEED, output=output)
    return Contestant(pool, [np.zeros(num_envs, np.int64)] * ACTION_BATCHES)
