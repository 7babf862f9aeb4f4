"""Envs and helpers with which tests look into the engine: a Python twin of Probe-v0, gates, views made alike."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from typing import Any, Self

import gymnasium
import numpy as np
from gymnasium import spaces

import stepmill
from stepmill.errors import ConcurrentUseError

VIEWS = ("gymnasium", "gym", "dm")
KINDS = ("native", "python")
MODES = ("next_step", "same_step", "disabled")


# How a program begins that makes pools of probes.
START = """
import os, signal, sys, threading
import numpy as np
import stepmill
from stepmill import errors
from support.probes import *
"""


class ProbeTwin(gymnasium.Env[np.ndarray, np.ndarray]):
    """``cpp/envs/debug/probe.h`` in Python: it counts, throws or calls back as a test asks."""

    def __init__(
        self,
        length: int = 10,
        fail_in: str = "",
        fail_at: int = 1,
        fail_count: int = 1,
        obs_size: int = 2,
        info: bool = False,
        on_step: Any = None,
    ) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (obs_size,), np.float64)
        self.action_space = spaces.Box(-1, 1, (), np.float32)
        self.closed = False
        self._length = length
        self._fail_in = fail_in
        self._failing = range(fail_at, fail_at + fail_count)
        self._calls = 0
        self._tells = info
        self._on_step = on_step
        self._draw = 0.0
        self._steps = 0
        self._may_fail("constructor")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._may_fail("reset")
        self._draw = self.np_random.random()
        self._steps = 0
        return self._observe(), self._info()

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._may_fail("step")
        if self._on_step is not None:
            self._on_step()
        self._steps += 1
        return self._observe(), float(action), self._steps >= self._length, False, self._info()

    def close(self) -> None:
        self.closed = True

    def _observe(self) -> np.ndarray:
        self._may_fail("observe")
        observation = np.full(self.observation_space.shape, self._steps, np.float64)
        observation[0] = self._draw
        return observation

    def _info(self) -> dict[str, Any]:
        if not self._tells:
            return {}
        own = {"steps": self._steps} if self._steps else {"draw": self._draw}
        return {**own, "both": np.array([self._draw, self._steps], np.float32)}

    def _may_fail(self, where: str) -> None:
        if self._fail_in != where:
            return
        self._calls += 1
        if self._calls in self._failing:
            raise RuntimeError(f"the probe was asked to fail in {where}")


def make_probe(kind: str, view: str = "gymnasium", **arguments: Any) -> Any:
    """A pool of Probe-v0 or of its twin; ``num_threads`` is left out for the twin, which has none."""
    if kind == "native":
        return stepmill.make("Probe-v0", view, **arguments)
    arguments.pop("num_threads", None)
    return stepmill.make(ProbeTwin, view, **{"backend": "inline", **arguments})


# ---- the three views, seen alike -----------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """A batch, whatever view it came from."""

    obs: Any
    reward: np.ndarray
    done: np.ndarray
    info: dict[str, Any]

    @property
    def ids(self) -> list[int]:
        return self.info["env_id"].tolist()

    @property
    def elapsed(self) -> list[int]:
        return self.info["elapsed_step"].tolist()

    @property
    def abnormal(self) -> list[bool]:
        """Which rows failed; all False where the batch says nothing of it."""
        return self.info["abnormal"].tolist() if "abnormal" in self.info else [False] * len(self.ids)


def seen(view: str, result: Any) -> Seen:
    """What ``step`` and ``recv`` of a view gave."""
    if view == "gymnasium":
        obs, reward, terminated, truncated, info = result
        return Seen(obs, reward, terminated | truncated, info)
    if view == "gym":
        return Seen(*result)
    inner = result.observation
    return Seen(inner.obs, result.reward, result.step_type == 2, inner.info)


def reset_obs(view: str, result: Any) -> Any:
    """The observation that ``reset`` of a view gave."""
    if view == "gymnasium":
        return result[0]
    return result if view == "gym" else result.observation.obs


def leaves(value: Any) -> list[np.ndarray]:
    """Every array in a result of any view."""
    if isinstance(value, np.ndarray):
        return [value] if value.dtype != object else leaves(value.tolist())
    if isinstance(value, dict):
        return [leaf for child in value.values() for leaf in leaves(child)]
    if isinstance(value, list | tuple):
        return [leaf for child in value for leaf in leaves(child)]
    return []


def assert_equal(left: Any, right: Any) -> None:
    """Two results hold the same arrays, bit for bit, in the same places."""
    assert type(left) is type(right), (left, right)
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_equal(left[key], right[key])
    elif isinstance(left, tuple):
        assert len(left) == len(right)
        for one, other in zip(left, right, strict=True):
            assert_equal(one, other)
    elif isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape)
        if left.dtype == object:
            assert_equal(tuple(left), tuple(right))
            return
        np.testing.assert_array_equal(left, right)
    else:
        assert left == right


# ---- steps that wait -----------------------------------------------------------------------------


class GatedPool:
    """A native pool whose steps wait until ``open`` lets them through."""

    def __init__(self, num_envs: int, view: str = "gymnasium", **arguments: Any) -> None:
        self._read, self._write = os.pipe()
        self.num_envs = num_envs
        self.pool = stepmill.make(
            "Probe-v0",
            view,
            num_envs=num_envs,
            num_threads=2,
            gate_fd=self._read,
            work=1_000_000,
            length=1_000_000,
            **arguments,
        )
        # Work that is known to be slow is left to the threads; only then can the caller wait and be called off.
        actions, ids = np.zeros(num_envs, np.float32), np.arange(num_envs)
        self.pool.send(actions, ids)
        self._collect()
        while self.pool.stats()["step_cost_ns"] < 500_000:
            self.open(num_envs)
            self.pool.send(actions, ids)
            self._collect()

    def _collect(self) -> None:
        while self.pool.stats()["in_flight"]:
            self.pool.recv()

    def open(self, steps: int) -> None:
        """Lets that many steps through."""
        os.write(self._write, b"x" * steps)

    def open_for_good(self) -> None:
        """Lets every step through, now and later."""
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open_for_good()
        if self.pool is not None:
            self.pool.close()
        os.close(self._read)


def wait_until_inside(pool: Any) -> None:
    """Returns when another thread is inside the pool."""
    while True:
        try:
            pool.stats()
        except ConcurrentUseError:
            return
        os.sched_yield()


def in_thread(function: Any) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


# ---- what a process holds ------------------------------------------------------------------------


def threads() -> set[str]:
    """The ids of this process's threads."""
    return set(os.listdir("/proc/self/task"))


def new_threads(before: set[str]) -> int:
    """How many threads were started since. The kernel lists an ended one for a moment after it was joined."""
    end = time.monotonic() + 60
    while (since := threads() - before) and time.monotonic() < end:
        os.sched_yield()
    return len(since)


def descriptor_count() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
