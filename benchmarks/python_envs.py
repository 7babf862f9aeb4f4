"""The Python envs that are measured, who takes part, and how many loops of Python make 100 µs.

The work of a step is a fixed number of iterations, found once a run and given to every contestant. A wait on
the clock would not do: it ends at the same time however many envs share a core.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np

STEP_S = 100e-6  # what the work of one step takes on an idle core
SLOWER = 20  # times as long, for the one slow env
FRAME = (4, 84, 84)

ENV_NAMES = {
    "cartpole": "CartPole-v1",
    "endless": "CartPole-v1 without end",
    "busy": "100 µs of work",
    "frame": "100 µs and a frame",
}

# ---- who takes part --------------------------------------------------------------------------------

STEPMILL = ("auto", "inline", "process")
OURS = (*STEPMILL, "async")
PARALLEL = ("gymnasium_async", "sb3", "tianshou")  # the peers that use more than one core
PEERS = ("gymnasium_sync", *PARALLEL)
POOLS = (*STEPMILL, *PEERS)
ASYNC = (*STEPMILL, "tianshou")  # those that give the first ready

LABELS = {
    "auto": "stepmill, default",
    "inline": 'stepmill, backend="inline"',
    "process": 'stepmill, backend="process"',
    "async": "stepmill, async",
    "gymnasium_sync": "Gymnasium SyncVectorEnv",
    "gymnasium_async": "Gymnasium AsyncVectorEnv",
    "sb3": "SB3 SubprocVecEnv",
    "tianshou": "Tianshou ShmemVectorEnv",
    "bare": "plain loop, one core",
    "meeting": "plain loops on all cores that meet after each batch",
    "free": "plain loops on all cores that never meet",
}
# The packages of the contestants, by their names for pip.
PACKAGES = {
    "stepmill": "stepmill",
    "gymnasium": "Gymnasium",
    "stable-baselines3": "Stable-Baselines3",
    "tianshou": "Tianshou",
    "torch": "torch",
}
NEEDS = {"sb3": "stable-baselines3", "tianshou": "tianshou"}


# ---- envs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Which envs, and how many of them."""

    env: str  # "cartpole", "endless", "busy" or "frame"
    num_envs: int
    iterations: int = 0
    batch_size: int | None = None  # None: all of them, sync
    slow: str | None = None  # how one env is slower than the others: "work" or "wait"
    loops: int = 1  # of bare loops that meet: how many, and the compiled barrier
    barrier: str = ""

    @property
    def label(self) -> str:
        return f"{self.num_envs} x {ENV_NAMES[self.env]}"

    def factories(self) -> list[Callable[[], gymnasium.Env[Any, Any]]]:
        """A function for each env. They can be pickled."""
        out: list[Callable[[], gymnasium.Env[Any, Any]]] = [self._factory()] * self.num_envs
        if self.slow == "work":
            out[self.num_envs // 2] = partial(Busy, self.iterations * SLOWER)
        elif self.slow == "wait":
            out[self.num_envs // 2] = partial(Busy, self.iterations, (SLOWER - 1) * STEP_S)
        return out

    def _factory(self) -> Callable[[], gymnasium.Env[Any, Any]]:
        if self.env == "cartpole":
            return partial(gymnasium.make, "CartPole-v1", disable_env_checker=True)
        if self.env == "endless":
            return EndlessCartPole
        return partial(Busy if self.env == "busy" else BusyFrame, self.iterations)


class EndlessCartPole(gymnasium.Wrapper[np.ndarray, int, np.ndarray, int]):
    """A pole that stands upright again instead of falling: its episodes never end."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True).unwrapped)

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, _, info = self.env.step(action)
        if terminated:
            inside: Any = self.env
            inside.state, inside.steps_beyond_terminated = np.zeros(4), None
        return observation, reward, False, False, info


class Busy(gymnasium.Env[np.ndarray, int]):
    """Does a fixed amount of work in each step; its episodes never end."""

    observation_space: gymnasium.Space[np.ndarray] = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, iterations: int, wait_s: float = 0) -> None:
        self._iterations = iterations
        self._wait_s = wait_s
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        work(self._iterations)
        if self._wait_s:
            time.sleep(self._wait_s)
        self._steps += 1
        return self._observe(), 1.0, False, False, {}

    def _observe(self) -> np.ndarray:
        return np.full(4, self._steps, np.float32)


class BusyFrame(Busy):
    """The same, and each observation is a new picture."""

    observation_space = gymnasium.spaces.Box(0, 255, FRAME, np.uint8)

    def _observe(self) -> np.ndarray:
        return np.full(FRAME, self._steps & 255, np.uint8)


def work(iterations: int) -> float:
    """Pure Python, so that it holds the interpreter as an env's own code does.

    With floats it takes the same time in every process, to half a percent; with large ints, which come from the
    allocator, it differed by four percent from one process to the next.
    """
    number = 1.0
    for _ in range(iterations):
        number = number * 0.5 + 0.25
    return number


def calibrate() -> int:
    """How many iterations of ``work`` take ``STEP_S``; the least of many tries, as others may use the machine."""
    tried = 1000
    clock = time.perf_counter
    least = float("inf")
    for _ in range(10_000):
        start = clock()
        work(tried)
        least = min(least, clock() - start)
    return round(tried * STEP_S / least)
