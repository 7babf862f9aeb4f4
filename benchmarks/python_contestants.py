"""Who runs Python envs: each is given the same factories and the same actions, and keeps its own defaults.

Two exceptions. SB3 starts its processes by fork: with its default each of them imports torch anew, and 64 of them
take a minute or two. Tianshou leaves the reset of an env whose episode ended to the caller, so that is done here.

Each library is imported by the function that needs it: a contestant's process holds no other's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.runners import AsyncContestant, Contestant

if TYPE_CHECKING:
    from benchmarks.python_envs import Case

SEED = 42
ACTION_BATCHES = 32


def build(name: str, case: Case) -> Contestant:
    """The contestant, after its first batch."""
    return BUILDERS[name](case)


def draw_actions(rows: int) -> list[np.ndarray]:
    """Random actions, the same for all: every env here has two."""
    generator = np.random.default_rng(SEED)
    return [generator.integers(0, 2, rows) for _ in range(ACTION_BATCHES)]


# ---- stepmill --------------------------------------------------------------------------------------


def stepmill_pool(backend: str, case: Case) -> Contestant:
    import stepmill

    pool = stepmill.make(
        case.factories(), num_envs=case.num_envs, batch_size=case.batch_size, seed=SEED, backend=backend
    )
    kind = Contestant if case.batch_size is None else AsyncContestant
    return kind(pool, draw_actions(case.batch_size or case.num_envs))


# ---- the others ------------------------------------------------------------------------------------


class BareLoop:
    """The envs one after the other in one process, and nothing else: what one core can give."""

    def __init__(self, case: Case) -> None:
        self._envs = [factory() for factory in case.factories()]

    def reset(self) -> None:
        for env in self._envs:
            env.reset()

    def step(self, actions: np.ndarray) -> None:
        for env, action in zip(self._envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    def close(self) -> None:
        for env in self._envs:
            env.close()


def bare_loop(case: Case) -> Contestant:
    return Contestant(BareLoop(case), draw_actions(case.num_envs))


def gymnasium_sync(case: Case) -> Contestant:
    from gymnasium.vector import SyncVectorEnv

    return Contestant(SyncVectorEnv(case.factories()), draw_actions(case.num_envs))


def gymnasium_async(case: Case) -> Contestant:
    from gymnasium.vector import AsyncVectorEnv

    return Contestant(AsyncVectorEnv(case.factories()), draw_actions(case.num_envs))


def sb3(case: Case) -> Contestant:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return Contestant(SubprocVecEnv(case.factories(), start_method="fork"), draw_actions(case.num_envs))


def tianshou(case: Case) -> Contestant:
    from tianshou.env import ShmemVectorEnv

    envs = ShmemVectorEnv(case.factories(), wait_num=case.batch_size)
    actions = draw_actions(case.num_envs)
    return Tianshou(envs, actions) if case.batch_size is None else TianshouAsync(envs, actions, case.batch_size)


class Tianshou(Contestant):
    """Resets the envs whose episodes ended, as Tianshou's collector does."""

    def run(self, calls: int) -> None:
        step, reset = self.envs.step, self.envs.reset
        for action in itertools.islice(self._actions, calls):
            result = step(action)
            ended = np.flatnonzero(result[2] | result[3])
            if ended.size:
                reset(ended)
        del result


class TianshouAsync(Contestant):
    """Waits for a batch of the envs, and gets all that are ready by then; for envs whose episodes never end."""

    def __init__(self, envs: Any, actions: list[np.ndarray], batch_size: int) -> None:
        super().__init__(envs, actions)
        self.rows_per_call = batch_size
        self._ids = list(range(len(envs)))
        self._owed = 0

    def run(self, calls: int) -> None:
        self._owed += calls * self.rows_per_call
        while self._owed > 0:
            result = self.envs.step(next(self._actions)[: len(self._ids)], self._ids)
            self._ids = [info["env_id"] for info in result[4]]
            self._owed -= len(self._ids)


BUILDERS: dict[str, Callable[[Case], Contestant]] = {
    "bare": bare_loop,
    "auto": partial(stepmill_pool, "auto"),
    "inline": partial(stepmill_pool, "inline"),
    "process": partial(stepmill_pool, "process"),
    "gymnasium_sync": gymnasium_sync,
    "gymnasium_async": gymnasium_async,
    "sb3": sb3,
    "tianshou": tianshou,
}
STEPMILL = ("auto", "inline", "process")
PARALLEL = ("gymnasium_async", "sb3", "tianshou")  # the peers that use more than one core
PEERS = ("gymnasium_sync", *PARALLEL)
ASYNC = (*STEPMILL, "tianshou")  # those that give the first ready

LABELS = {
    "auto": "stepmill",
    "inline": "stepmill, inline",
    "process": "stepmill, process",
    "gymnasium_sync": "Gymnasium Sync",
    "gymnasium_async": "Gymnasium Async",
    "sb3": "SB3 Subproc",
    "tianshou": "Tianshou Shmem",
    "bare": "bare loop",
    "bare_all": "bare, all cores",
}
# The packages that stand behind the contestants, by the names that pip knows.
PACKAGES = {
    "stepmill": "stepmill",
    "gymnasium": "Gymnasium",
    "stable-baselines3": "Stable-Baselines3",
    "tianshou": "Tianshou",
    "torch": "torch",
}
NEEDS = {"sb3": "stable-baselines3", "tianshou": "tianshou"}
