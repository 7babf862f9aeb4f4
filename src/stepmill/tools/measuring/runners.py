"""Reading the clock while envs are stepped, call after call, and how the envs of other libraries are made.

Imports neither stepmill nor any library that is measured: the process of one contestant loads no other.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

SEED = 42
ACTION_BATCHES = 32  # drawn before the clock starts, and repeated
BLOCK_S = 0.002  # the clock is read about this often: its own cost must not show


@dataclass(frozen=True)
class Effort:
    """How long to measure: ``repeats`` rounds, ``seconds`` for each contestant in each."""

    repeats: int
    seconds: float


class Runner(Protocol):
    """Something that makes calls, each of which steps ``rows_per_call`` envs."""

    rows_per_call: int

    def run(self, calls: int) -> None: ...


def steps_per_second(runner: Runner, seconds: float) -> float:
    """Steps of single envs per second, after a warm-up of a fifth of the time."""
    block = _block(runner, seconds / 5)
    clock = time.perf_counter
    calls = 0
    start = now = clock()
    while now - start < seconds:
        runner.run(block)
        calls += block
        now = clock()
    return calls * runner.rows_per_call / (now - start)


def _block(runner: Runner, seconds: float) -> int:
    """Warms up, and finds how many calls take about ``BLOCK_S``."""
    clock = time.perf_counter
    block = 1
    end = clock() + seconds
    while True:
        start = clock()
        runner.run(block)
        now = clock()
        if now - start < BLOCK_S / 2 and block < 1 << 16:
            block *= 2
        elif now >= end:
            return block


def sample(runner: Any, seconds: float) -> float:
    """Steps per second, by the clock of a program that measures itself, or by ours."""
    own_clock = getattr(runner, "steps_per_second", None)
    return float(own_clock(seconds)) if own_clock else steps_per_second(runner, seconds)


# ---- those who take part ---------------------------------------------------------------------------


class Contestant:
    """Envs that are stepped all at once, in sync mode."""

    def __init__(self, envs: Any, actions: list[Any], num_threads: int | None = None) -> None:
        self.envs = envs
        self.num_threads = num_threads
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        self.begin()

    def begin(self) -> None:
        self.envs.reset()

    def run(self, calls: int) -> None:
        step = self.envs.step
        for action in itertools.islice(self._actions, calls):
            result = step(action)  # kept until the next one comes, as a user would
        del result

    def latencies(self, calls: int) -> np.ndarray:
        """Nanoseconds of each of ``calls`` steps."""
        step, clock = self.envs.step, time.perf_counter_ns
        times = []
        for action in itertools.islice(self._actions, calls):
            start = clock()
            result = step(action)
            times.append(clock() - start)
        del result
        return np.array(times)

    def close(self) -> None:
        self.envs.close()


class AsyncContestant(Contestant):
    """Envs of which a batch is received and answered while the others run."""

    def begin(self) -> None:
        self.envs.async_reset()
        self._ids = self.envs.recv()[-1]["env_id"]

    def run(self, calls: int) -> None:
        send, recv, ids = self.envs.send, self.envs.recv, self._ids
        for action in itertools.islice(self._actions, calls):
            send(action, ids)
            result = recv()
            ids = result[-1]["env_id"]
        self._ids = ids


class TianshouContestant(Contestant):
    """Resets the envs whose episodes ended, as Tianshou's collector does."""

    def run(self, calls: int) -> None:
        step, reset = self.envs.step, self.envs.reset
        for action in itertools.islice(self._actions, calls):
            result = step(action)
            ended = np.flatnonzero(result[2] | result[3])
            if ended.size:
                reset(ended)
        del result


# ---- other libraries -------------------------------------------------------------------------------

Factories = Sequence[Callable[[], Any]]


def build_gymnasium(kind: str, factories: Factories, actions: list[Any], **arguments: Any) -> Contestant:
    """Gymnasium's ``SyncVectorEnv`` or ``AsyncVectorEnv``."""
    from gymnasium import vector

    return Contestant(getattr(vector, f"{kind}VectorEnv")(factories, **arguments), actions)


def build_sb3(kind: str, factories: Factories, actions: list[Any]) -> Contestant:
    """``DummyVecEnv`` or ``SubprocVecEnv``, which forks: by default each of its processes would import torch again."""
    from stable_baselines3.common import vec_env

    arguments = {"start_method": "fork"} if kind == "Subproc" else {}
    return Contestant(getattr(vec_env, f"{kind}VecEnv")(factories, **arguments), actions)


def build_tianshou(factories: Factories, actions: list[Any]) -> Contestant:
    """``ShmemVectorEnv``, and the resets that it leaves to its caller."""
    from tianshou.env import ShmemVectorEnv

    return TianshouContestant(ShmemVectorEnv(factories), actions)
