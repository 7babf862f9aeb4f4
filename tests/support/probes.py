"""Envs and helpers with which tests look into the engine: a Python twin of Probe-v0, gates, views made alike."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

import stepmill
from support.envs import ProbeTwin

VIEWS = ("gymnasium", "gym", "dm")
KINDS = ("native", "python")
ELSEWHERE = ("native-process", "python-process")  # the same, in two worker processes
MODES = ("next_step", "same_step", "disabled")


# How a program begins that makes pools of probes.
START = """
import os, signal, sys, threading
import numpy as np
import stepmill
from stepmill import errors
from support.envs import *
from support.probes import *
from support.processes import *
from support.waiting import *
"""


def zeros(count: int) -> np.ndarray:
    """The first of discrete actions, for each of the envs."""
    return np.zeros(count, np.int64)


def make_probe(kind: str, view: str = "gymnasium", **arguments: Any) -> Any:
    """A pool of Probe-v0 or of its twin; ``num_threads`` is left out for the twin, which has none."""
    if kind in ELSEWHERE:
        task = "Probe-v0" if kind == "native-process" else ProbeTwin
        return stepmill.make(task, view, **{"backend": "process", "num_workers": 2, **arguments})
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


# ---- what a process holds ------------------------------------------------------------------------


def assert_same(got: Any, expected: Any, where: str = "") -> None:
    """Equal in structure, type and every bit: 0.0 is not -0.0 here, and NaN is NaN."""
    assert type(got) is type(expected), f"{where}: expected {expected!r}, got {got!r}"
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), f"{where}: expected the keys {[*expected]}, got {[*got]}"
        for key in expected:
            assert_same(got[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(got) == len(expected), f"{where}: expected {len(expected)} items, got {len(got)}"
        for i, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(expected, np.ndarray | np.generic):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), where
        if expected.dtype == object:
            assert_same(got.tolist(), expected.tolist(), where)
        else:
            assert got.tobytes() == expected.tobytes(), f"{where}: expected {expected!r}, got {got!r}"
    else:
        assert got == expected or (got != got and expected != expected), f"{where}: expected {expected!r}, got {got!r}"
