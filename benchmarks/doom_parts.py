"""ViZDoom: stepmill beside EnvPool, Gymnasium's AsyncVectorEnv, and a plain loop over the games of one worker."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import tempfile
from collections.abc import Callable
from typing import Any

import gymnasium

from benchmarks.cpu_time import interleaved_with_cpu_time
from benchmarks.python_contestants import BareLoop
from benchmarks.runners import Contestant
from benchmarks.timing import Effort
from stepmill.registry.records import find
from stepmill.tools.measuring.machine import cores
from stepmill.tools.measuring.peers import Subject, envpool_has, envpool_pool, stepmill_pool

ENVS = ("Basic-v1", "VizdoomBasic-v1")  # preprocessed, four tics per step; and ViZDoom's own, one tic per step
NUM_ENVS = (8, 64)

Log = Callable[[str], None]


def doom(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second, all envs in each step, and the CPU time of a step, that of the games included."""
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
        results = interleaved_with_cpu_time(runners, effort)
    return {"env": env, "num_envs": num_envs, "batch_size": num_envs, "cores": cores(), **results}


def _contestants(env: str, num_envs: int) -> dict[str, Callable[[], Any]]:
    subject = Subject.of(env, num_envs)
    found: dict[str, Callable[[], Any]] = {
        "stepmill": lambda: stepmill_pool(subject, backend="process", start_timeout=600),
        "gymnasium_async": lambda: _gymnasium_async(env, num_envs),
        "loop": lambda: _loop(env, max(1, num_envs // cores())),
    }
    if envpool_has(subject):
        found["envpool"] = lambda: envpool_pool(subject, min(num_envs, cores()))
    return found


def _build(env: str) -> Any:
    factory = find(env).factory
    assert factory is not None
    return factory()


def _gymnasium_async(env: str, num_envs: int) -> Contestant:
    makers = [functools.partial(_build, env)] * num_envs
    return Contestant(gymnasium.vector.AsyncVectorEnv(makers), Subject.of(env).actions(num_envs))


def _loop(env: str, num_envs: int) -> Contestant:
    """As many games as one worker of the pool has, in a plain loop: each is a process that takes turns with ours."""
    return Contestant(BareLoop([functools.partial(_build, env)] * num_envs), Subject.of(env).actions(num_envs))
