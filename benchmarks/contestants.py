"""Who takes part: each makes its envs through its public interface, with its checks and info on.

All get the same actions, drawn before the clock starts, each in the dtype of its own action space.
"""

from __future__ import annotations

import itertools
import time
from typing import Any

import gymnasium
import numpy as np

import stepmill

SEED = 42
ACTION_BATCHES = 32


class Contestant:
    """Envs that are stepped all at once, in sync mode."""

    def __init__(self, envs: Any, actions: list[Any], num_threads: int | None = None) -> None:
        self.envs = envs
        self.num_threads = num_threads
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        envs.reset()

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

    def __init__(self, envs: Any, actions: list[Any], num_threads: int | None = None) -> None:
        self.envs = envs
        self.num_threads = num_threads
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        envs.async_reset()
        self._ids = envs.recv()[-1]["env_id"]

    def run(self, calls: int) -> None:
        send, recv, ids = self.envs.send, self.envs.recv, self._ids
        for action in itertools.islice(self._actions, calls):
            send(action, ids)
            result = recv()
            ids = result[-1]["env_id"]
        self._ids = ids


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
    """The version installed, or None where there is none."""
    try:
        import envpool
    except ModuleNotFoundError:
        return None
    return str(envpool.__version__)


def envpool_has(env: str) -> bool:
    if envpool_version() is None:
        return False
    import envpool

    return env in envpool.list_all_envs()
