"""Measures what a step of an env costs, for ``backend="auto"``."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import statistics
import time
from collections.abc import Callable
from typing import Any

from stepmill.errors import UnsupportedError
from stepmill.hosts.process.trial import StepCost, StepTrial, Stopwatch
from stepmill.registry.description import EnvDescription, has_coroutines, player_rows
from stepmill.registry.factories import close_quietly
from stepmill.sources.source import PythonSource
from stepmill.system.guardian import exit_if_forked

_KEPT = 0.98  # the share of the steps that counts


def step_cost(source: PythonSource, trial: StepTrial, on_reset: Callable[[], None]) -> StepCost | None:
    """What a step of env 0 costs; None if its constructor is slow, or its methods are coroutines.

    ``on_reset`` is called before the first step.

    The env is built as env 0 is, reset, stepped with sampled actions, reset at the end of each episode, and closed. If
    it forks, that is an error: it must not run in the calling thread, where both processes would go on.
    """
    forks: list[int] = []
    os.register_at_fork(after_in_parent=lambda: forks.append(1))
    began = time.perf_counter()
    env = source.build(0, 0)
    exit_if_forked()
    if has_coroutines(env):  # it waits: there is nothing to measure
        close_quietly(env)
        return None
    try:
        if time.perf_counter() - began > trial.heavy_s:
            return None
        measurement = _Measurement(env, trial.seed, source.envs[0].max_episode_steps)
        on_reset()
        cost = measurement.cost(trial.enough_s)
    finally:
        env.close()
        exit_if_forked()
    if forks:
        raise UnsupportedError("the env forks")
    return cost


class _Measurement:
    def __init__(self, env: Any, seed: int, most_steps: int | None) -> None:
        self._env = env
        self._most_steps = most_steps
        self._sample = _sampler(env, seed)
        self._elapsed = 0
        self._steps: list[float] = []
        self._resets: list[float] = []
        self._infos: list[float] = []
        env.reset(seed=seed, options=None)
        exit_if_forked()

    def cost(self, enough_s: float) -> StepCost:
        self._step()
        self._steps.clear()  # the first step ran with cold caches
        watch = Stopwatch(os.getpid())
        end = time.perf_counter() + enough_s
        self._step()
        while time.perf_counter() < end:
            self._step()
        count = len(self._steps)
        resets = statistics.median(self._resets) * len(self._resets) / count if self._resets else 0.0
        return StepCost(_mean(self._steps) + resets, sum(self._infos) / count, watch.mostly_waits())

    def _step(self) -> None:
        action = self._sample()
        began = time.perf_counter()
        _, _, terminated, truncated, info = self._env.step(action)
        self._steps.append(time.perf_counter() - began)
        if info:
            self._infos.append(_seconds(lambda: _travel(info)))
        self._elapsed += 1
        if terminated or truncated or self._elapsed == self._most_steps:
            self._elapsed = 0
            self._resets.append(_seconds(lambda: self._env.reset(seed=None, options=None)))
        exit_if_forked()


def _seconds(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _travel(info: Any) -> None:
    with contextlib.suppress(Exception):  # an info that cannot be pickled stays in its worker
        pickle.loads(pickle.dumps(info, protocol=pickle.HIGHEST_PROTOCOL))


def _mean(samples: list[float]) -> float:
    """The mean without the few longest: on a busy machine another process ran during those."""
    kept = sorted(samples)[: math.ceil(len(samples) * _KEPT)]
    return sum(kept) / len(kept)


def _sampler(env: Any, seed: int) -> Callable[[], Any]:
    described = EnvDescription.of(env)
    space = described.action_space
    if described.num_players > 1:
        space = player_rows(space, 1, described.num_players, described.player_kinds)
    space.seed(seed)
    return space.sample
