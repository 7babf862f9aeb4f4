"""ViZDoom: stepmill beside EnvPool, Gymnasium's AsyncVectorEnv, and a plain loop over one game."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import gymnasium

from benchmarks.contestants import SEED, draw_actions, envpool_has, envpool_pool, stepmill_pool
from benchmarks.machine import cores
from benchmarks.runners import Contestant
from benchmarks.timing import Effort, interleaved
from stepmill.registry import find

ENVS = ("Basic-v1", "VizdoomBasic-v1")  # preprocessed, four tics per step; and ViZDoom's own, one tic per step
NUM_ENVS = (8, 64)

Log = Callable[[str], None]


def doom(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second, all envs in each step."""
    if importlib.util.find_spec("vizdoom") is None:
        log("no vizdoom: left out")
        return []
    return [_compare(env, n, effort, log) for env in ENVS for n in NUM_ENVS]


def _compare(env: str, num_envs: int, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"{env}, {num_envs} games")
    runners: dict[str, Any] = {}
    # Games that others start drop files into the working directory.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.ExitStack() as made:
        for name, make in _contestants(env, num_envs).items():
            runners[name] = make()
            made.callback(runners[name].close)
        results = interleaved(runners, effort)
    row: dict[str, Any] = {"env": env, "num_envs": num_envs, "batch_size": num_envs}
    row |= results
    row["loops"] = {"steps_per_s": cores() * results["loop"]["steps_per_s"]}
    return row


def _contestants(env: str, num_envs: int) -> dict[str, Callable[[], Any]]:
    found: dict[str, Callable[[], Any]] = {
        "stepmill": lambda: stepmill_pool(env, num_envs, backend="process", start_timeout=600),
        "gymnasium_async": lambda: _gymnasium_async(env, num_envs),
        "loop": lambda: Loop(env),
    }
    if envpool_has(env):
        found["envpool"] = lambda: envpool_pool(env, num_envs, min(num_envs, cores()))
    return found


def _build(env: str) -> Any:
    factory = find(env).factory
    assert factory is not None
    return factory()


def _gymnasium_async(env: str, num_envs: int) -> Contestant:
    makers = [functools.partial(_build, env)] * num_envs
    return Contestant(gymnasium.vector.AsyncVectorEnv(makers), draw_actions(env, num_envs))


class Loop:
    """One game in a plain Python loop: its process and ours take turns, so that together they keep one core busy."""

    rows_per_call = 1

    def __init__(self, env: str) -> None:
        self._env = _build(env)
        self._env.reset(seed=SEED)
        self._actions = itertools.cycle(batch[0] for batch in draw_actions(env, 1))

    def run(self, calls: int) -> None:
        for action in itertools.islice(self._actions, calls):
            _, _, terminated, truncated, _ = self._env.step(action)
            if terminated or truncated:
                self._env.reset()

    def close(self) -> None:
        self._env.close()
