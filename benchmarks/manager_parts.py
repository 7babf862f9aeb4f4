"""What an env manager costs on top of the pool inside it: our managers and pools with the same envs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import stepmill
from benchmarks.python_envs import Case
from benchmarks.python_parts import iterations
from benchmarks.tables import MANAGER_POOLS
from benchmarks.timing import Effort, Log, interleaved
from stepmill.managers import AsyncSubprocessEnvManager, BaseEnvManager, SyncSubprocessEnvManager
from stepmill.tools.measuring.runners import Contestant

CASES = (Case("cartpole", 64), Case("endless", 64), Case("cartpole", 8), Case("busy", 64), Case("frame", 64))
MANAGERS = {
    "base": BaseEnvManager,
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
}
ACTION_BATCHES = 512
SEED = 0


class ManagedContestant:
    """An env manager, ours or DI-engine's, in the loop of a collector without a policy."""

    def __init__(self, manager: Any, actions: list[Any]) -> None:
        self.manager = manager
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        self._owed = 0

    def run(self, calls: int) -> None:
        """A call is done when that many envs have been stepped: which and how many come back at once differs."""
        manager = self.manager
        self._owed += calls * self.rows_per_call
        while self._owed > 0:
            actions = next(self._actions)
            ready = manager.ready_obs
            # By env id in DI-engine's managers, by position in their v2.
            by_id = isinstance(ready, dict)
            result = manager.step({one: actions[one] for one in ready} if by_id else actions[: len(ready)])
            self._owed -= len(result)

    def close(self) -> None:
        self.manager.close()


def managers(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second of managers and of bare pools, and the extra cost of a step in a manager."""
    return [_compare(case, effort, log) for case in CASES]


def draw_actions(count: int) -> tuple[list[Any], list[Any]]:
    """Batches of actions for ``count`` envs: as arrays, and one array per env, as a policy sends them to a manager."""
    drawn = np.random.default_rng(SEED).integers(0, 2, (ACTION_BATCHES, count, 1))
    return list(drawn[:, :, 0]), [list(batch) for batch in drawn]


def bare_pool(env_fn: Sequence[Callable[[], Any]], backend: str) -> Contestant:
    """A pool like the one inside a manager. In this mode one row is one step, as there."""
    pool = stepmill.make(list(env_fn), seed=SEED, backend=backend, autoreset="same_step")
    return Contestant(pool, draw_actions(len(env_fn))[0])


def above_pools(results: dict[str, Any], managers: str = "") -> dict[str, float]:
    """Nanoseconds that a step takes longer in a manager than in the pool of its kind."""
    return {
        name: 1e9 / results[managers + name]["steps_per_s"] - 1e9 / results[f"pool_{pool}"]["steps_per_s"]
        for pool, name in MANAGER_POOLS.items()
    }


def _compare(case: Case, effort: Effort, log: Log) -> dict[str, Any]:
    if case.env in ("busy", "frame"):
        case = replace(case, iterations=iterations())
    log(f"managers of {case.label}")
    _, singles = draw_actions(case.num_envs)
    runners: dict[str, Any] = {}
    try:
        for name, kind in MANAGERS.items():
            manager = kind(case.factories())
            runners[name] = ManagedContestant(manager, singles)
            manager.seed(SEED)
            manager.launch()
        for name in MANAGER_POOLS:
            runners[f"pool_{name}"] = bare_pool(case.factories(), name)
        results: dict[str, Any] = dict(interleaved(runners, effort))
    finally:
        for runner in runners.values():
            runner.close()
    return {"case": case.label, "num_envs": case.num_envs, **results, "above_pool_ns": above_pools(results)}
