"""The libraries that are compared: each makes its envs through its public interface, with its checks and info on.

All get the same actions, drawn before the clock starts, in the dtype of each one's action space.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

import stepmill
from benchmarks.runners import AsyncContestant, Contestant

SEED = 42
ACTION_BATCHES = 32


def draw_actions(env: str, rows: int) -> list[np.ndarray]:
    """Random actions for ``rows`` envs, the same on every call."""
    space = gymnasium.vector.utils.batch_space(stepmill.make_spec(env).action_space, rows)
    space.seed(SEED)
    return [space.sample() for _ in range(ACTION_BATCHES)]


def stepmill_pool(env: str, num_envs: int, batch_size: int | None = None, **arguments: Any) -> Contestant:
    pool = stepmill.make(env, num_envs=num_envs, batch_size=batch_size, seed=SEED, **arguments)
    actions = draw_actions(env, batch_size or num_envs)
    kind = Contestant if batch_size is None else AsyncContestant
    return kind(pool, actions, pool.config["num_threads"])


def envpool_pool(env: str, num_envs: int, num_threads: int, batch_size: int | None = None) -> Contestant:
    import envpool

    given = {} if batch_size is None else {"batch_size": batch_size}
    pool = envpool.make_gymnasium(env, num_envs=num_envs, num_threads=num_threads, seed=SEED, **given)
    dtype = pool.spec.action_array_spec["action"].dtype
    actions = [action.astype(dtype) for action in draw_actions(env, batch_size or num_envs)]
    kind = Contestant if batch_size is None else AsyncContestant
    return kind(pool, actions, num_threads)


def gymnasium_envs(env: str, num_envs: int) -> Contestant:
    envs = gymnasium.make_vec(env, num_envs=num_envs, vectorization_mode="sync")
    return Contestant(envs, draw_actions(env, num_envs))


def envpool_version() -> str | None:
    """The installed version, or None if there is none."""
    try:
        import envpool
    except ImportError:
        return None
    return str(envpool.__version__)


def envpool_has(env: str) -> bool:
    if envpool_version() is None:
        return False
    import envpool

    return env in envpool.list_all_envs()
