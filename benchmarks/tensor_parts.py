"""What a pool of tensors costs on top of one of numpy's arrays: the same envs and actions, only ``output`` differs.

Also batches that go to a GPU: whether their copies hide behind the steps of the envs, or the steps behind the copies.
"""

from __future__ import annotations

import importlib.util
import time
from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import stepmill
from benchmarks.timing import Effort, Log, interleaved
from stepmill.tools.measuring.peers import Workload, stepmill_pool
from stepmill.tools.measuring.runners import ACTION_BATCHES, SEED, Contestant

CARTPOLE = "CartPole-v1"
FRAMES = "frames"
CASES = ((CARTPOLE, 1), (CARTPOLE, 64), (CARTPOLE, 1024), (FRAMES, 16))
TENSORS = 4  # of a step: observation, reward, terminated, truncated
LIBRARIES = ("torch", "jax")


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
        return stepmill_pool(Workload.of(env, num_envs), output=output)
    pool = stepmill.make(Frames, num_envs=num_envs, backend="inline", seed=SEED, output=output)
    return Contestant(pool, [np.zeros(num_envs, np.int64)] * ACTION_BATCHES)


# ---- copies to a GPU -------------------------------------------------------------------------------

NUM_ENVS, BATCH_SIZE = 512, 256
AHEAD = 8  # batches whose copies a program by hand lets run before it waits for the oldest


class _Timed:
    """Batches for some seconds, the last of them copied within the time. Blocks of a few ms would not overlap."""

    def steps_per_second(self, seconds: float) -> float:
        import torch

        clock = time.perf_counter
        self.one()
        torch.cuda.synchronize()
        start, batches = clock(), 0
        while clock() - start < seconds:
            self.one()
            batches += 1
        torch.cuda.synchronize()
        return batches * BATCH_SIZE / (clock() - start)

    def one(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class _Pool(_Timed):
    """Async batches of frames from worker processes."""

    def __init__(self, env: Any, **arguments: Any) -> None:
        self.pool = stepmill.make(
            env, num_envs=NUM_ENVS, batch_size=BATCH_SIZE, backend="process", seed=SEED, output="torch", **arguments
        )
        self.actions = np.zeros(BATCH_SIZE, np.int64)
        self.pool.async_reset()
        for _ in range(2 * NUM_ENVS // BATCH_SIZE):  # the first steps of real games take long
            self.one()

    def one(self) -> None:
        *batch, info = self.pool.recv()
        self.use(batch)
        self.pool.send(self.actions, info["env_id"])

    def use(self, batch: list[Any]) -> None:
        """A program would compute with it."""

    def close(self) -> None:
        self.pool.close()


class _ByHand(_Pool):
    """What a program does that knows nothing of locked memory: it waits for each copy."""

    def use(self, batch: list[Any]) -> None:
        for tensor in batch:
            tensor.to("cuda")


class _Copies(_Timed):
    """The copies alone, from locked memory."""

    def __init__(self) -> None:
        import torch

        self.source = torch.zeros((BATCH_SIZE, *Frames.observation_space.shape), dtype=torch.uint8, pin_memory=True)
        self.pending: deque[Any] = deque()
        self.new_event = torch.cuda.Event

    def one(self) -> None:
        self.source.to("cuda", non_blocking=True)
        event = self.new_event()
        event.record()
        self.pending.append(event)
        if len(self.pending) > AHEAD:
            self.pending.popleft().synchronize()


def gpu_copies(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Nanoseconds per batch of steps alone, of copies alone, and of both together."""
    if importlib.util.find_spec("torch") is None:
        log("no torch: left out")
        return []
    import torch

    if not torch.cuda.is_available():
        log("no GPU: left out")
        return []
    envs = {"envs that do nothing": Frames}
    if importlib.util.find_spec("ale_py") is not None:
        envs["Pong-v5"] = "Pong-v5"
    return [_compare_copies(name, env, effort, log) for name, env in envs.items()]


def _compare_copies(name: str, env: Any, effort: Effort, log: Log) -> dict[str, Any]:
    import torch

    log(f"{BATCH_SIZE} of {NUM_ENVS} envs with frames, {name}, and their copies to the GPU")
    runners = {"steps": _Pool(env), "copies": _Copies(), "both": _Pool(env, device="cuda"), "by_hand": _ByHand(env)}
    row: dict[str, Any] = {"env": name, "num_envs": NUM_ENVS, "batch_size": BATCH_SIZE}
    row["gpu"] = torch.cuda.get_device_name()
    for contestant, result in interleaved(runners, effort).items():
        row[contestant] = {**result, "batch_ns": 1e9 * BATCH_SIZE / result["steps_per_s"]}
    row["over_slower"] = row["both"]["batch_ns"] / max(row["steps"]["batch_ns"], row["copies"]["batch_ns"])
    for runner in runners.values():
        runner.close()
    return row
