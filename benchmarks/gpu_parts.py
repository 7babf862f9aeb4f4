"""Batches that go to a GPU: whether their copies hide behind the steps of the envs, or the steps behind the copies."""

from __future__ import annotations

import importlib.util
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

import stepmill
from benchmarks.runners import SEED
from benchmarks.tensor_parts import Frames
from benchmarks.timing import Effort, interleaved

NUM_ENVS, BATCH_SIZE = 512, 256
AHEAD = 8  # batches whose copies a program by hand lets run before it waits for the oldest

Log = Callable[[str], None]


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
    return [_compare(name, env, effort, log) for name, env in envs.items()]


def _compare(name: str, env: Any, effort: Effort, log: Log) -> dict[str, Any]:
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
