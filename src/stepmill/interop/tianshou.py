"""Pools as vector envs of Tianshou: its collectors, wrappers and trainers take a ``PoolVectorEnv``."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ActionError, ConfigError, EnvError, InputError, SpaceError, UnsupportedError, UsageError
from stepmill.interop.pools import check_pool, reset_until_good
from stepmill.make import make_gymnasium
from stepmill.settings import check_seeds
from stepmill.system.optional import TIANSHOU, require
from stepmill.values.trees import leaves, map_tree
from stepmill.views.gymnasium import GymnasiumPool

require(*TIANSHOU, "stepmill.interop.tianshou")

from tianshou.env import BaseVectorEnv  # noqa: E402

__all__ = ["PoolVectorEnv", "make_vector_env"]

Row = tuple[Any, Any, Any, Any, dict[str, Any]]
Step = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

# What a reset raises before anything was reset.
_REFUSALS = (ConfigError, InputError, UsageError)


def make_vector_env(task_id: Any, **arguments: Any) -> PoolVectorEnv:
    """``PoolVectorEnv(stepmill.make(task_id, ...))``."""
    if "env_type" in arguments:
        raise ConfigError("make_vector_env: got env_type, but Tianshou's pools are of one type: leave it out")
    return PoolVectorEnv(make_gymnasium(task_id, **arguments))


class PoolVectorEnv(BaseVectorEnv):  # type: ignore[misc]
    """A pool in the form of Tianshou's vector envs.

    ``action_space`` and ``observation_space`` are lists with a space for each env, seeded as the envs are: collectors
    draw random actions from them. Infos are one dict per row, with the env's id. A pool with ``batch_size < num_envs``
    is an async vector env whose ``wait_num`` is ``batch_size``.

    Args:
        pool: What ``stepmill.make`` returns, with envs of one player. It belongs to the vector env, which closes it.
    """

    def __init__(self, pool: GymnasiumPool) -> None:
        _check(pool)
        self.pool = pool
        self.env_num = pool.num_envs
        self.wait_num = pool.batch_size
        self.timeout = None
        self.is_async = pool.is_async
        self.workers: list[Any] = []  # Tianshou's own vector envs have one per env
        self._spaces = {
            "action_space": [copy.deepcopy(pool.single_action_space) for _ in range(pool.num_envs)],
            "observation_space": [copy.deepcopy(pool.single_observation_space) for _ in range(pool.num_envs)],
        }
        self._seed_spaces(pool.settings.seed)
        # What Ctrl-C has interrupted, if the pool is not async.
        self._batch: Any = None  # results of a step that nobody has got
        self._kept: dict[int, Row] = {}  # the same by env; the next step of each env returns its row
        self._unfinished: tuple[Any, dict[str, Any]] | None = None  # the arguments of a reset

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.pool.closed

    @property
    def waiting_id(self) -> list[int]:
        """The envs that are under way."""
        return self.pool.in_flight

    @property
    def ready_id(self) -> list[int]:
        """The envs that wait for an action."""
        waiting = set(self.waiting_id)
        return [one for one in range(self.env_num) if one not in waiting]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pool})"

    # ---- stepping ----------------------------------------------------------------------------

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
        """Resets all envs, or those of ``env_id`` in that order; takes ``seed`` and ``options`` as a pool does.

        A seed is for env 0, and env i has ``seed + i``. With ``on_error="restart"`` a reset that fails is done again.
        """
        for name in kwargs.keys() - {"seed", "options"}:
            raise InputError(f"reset: expected seed and options, got {name}: what the envs take goes into options")
        if not self.is_async and env_id is not None:
            self._keep_interrupted()  # the rows of the other envs
        before, self._unfinished = self._unfinished, (env_id, kwargs)
        try:
            ids, obs, infos = self._reset(env_id, **kwargs)
        except _REFUSALS:
            self._unfinished = before
            raise
        kept = {one: row for one, row in self._kept.items() if one not in ids}
        self._kept, self._batch, self._unfinished = kept, None, None  # at once, and then nothing but the return
        return obs, infos

    def _reset(self, env_id: Any, seed: Any = None, options: Any = None) -> tuple[set[int], np.ndarray, np.ndarray]:
        """Resets envs until all have begun an episode: their ids, observations and infos."""
        ids = list(range(self.env_num)) if env_id is None else self._wrap_id(env_id)
        seeds = None if seed is None else check_seeds(seed, ids, allow_none=True)
        whole: Any = None
        infos: Any = None
        for rows, obs, info in reset_until_good(self.pool, None if env_id is None else ids, seeds, options):
            if whole is None:
                whole, infos = _observations(obs), _infos(info)
                continue
            again = dict(zip(rows, _observations(obs), strict=True))
            whole = _stack([again.get(row, one) for row, one in enumerate(whole)])
            infos[rows] = _infos(info)
        if seeds is not None:
            self._seed_spaces(seeds, ids)
        return {int(one) for one in ids}, whole, infos

    def step(self, action: Any, id: Any = None) -> Step:
        """Steps all envs, or those of ``id``.

        In async mode it returns the ``wait_num`` envs that are ready first, among all that are under way. ``None``
        instead of an action sends nothing.

        After Ctrl-C in a step, the next step of each of its envs returns what that one did; the action is not used.
        """
        if action is None:
            return _step(self.pool.recv())
        ids = self._wrap_id(id)
        if self.is_async:
            return _step(self.pool.step(action, np.asarray(ids)))
        self._keep_interrupted()
        if self._kept:
            return self._step_with_kept(action, ids)
        self.pool.send(action, np.asarray(ids))
        self.pool.recv_into(self, "_batch")
        step = _step(self._batch)
        self._batch = None
        return step

    # Ctrl-C may come again at any time: what was received is put away before anything else is done, and let go right
    # before the return. Only assignments stand there: reading an attribute would run Python code, of Tianshou.

    def _keep_interrupted(self) -> None:
        """Keeps the rows of a step that Ctrl-C has interrupted. Does an interrupted reset again: its rows are ends."""
        if self._unfinished is not None:
            self._finish_reset(*self._unfinished)
        if self._batch is None and self.pool.in_flight:
            try:
                self.pool.recv_into(self, "_batch")
            except EnvError as error:
                self._batch = error.batch  # envs in this thread were in the middle of a step
                if not all(isinstance(one.__cause__, KeyboardInterrupt) for one in error.errors):
                    self._batch = None
                    raise
        if self._batch is not None:
            self._keep(self._batch)

    def _finish_reset(self, env_id: Any, kwargs: dict[str, Any]) -> None:
        self.pool.drain()
        try:
            _, obs, infos = self._reset(env_id, **kwargs)
        except _REFUSALS:
            self._unfinished = None
            raise
        kept = self._kept | {info["env_id"]: (obs[i], 0.0, False, True, info) for i, info in enumerate(infos)}
        self._kept, self._batch, self._unfinished = kept, None, None

    def _keep(self, batch: Any) -> None:
        kept = self._kept | {row[-1]["env_id"]: row for row in zip(*_step(batch), strict=True)}
        self._kept, self._batch = kept, None

    def _step_with_kept(self, action: Any, ids: Any) -> Step:
        """Steps the envs that have no row yet, and returns the rows of all."""
        new = [i for i, one in enumerate(ids) if one not in self._kept]

        def rows(part: Any) -> np.ndarray:
            array = np.asarray(part)
            if array.ndim == 0 or len(array) != len(ids):
                raise ActionError(f"action: expected {len(ids)} rows, one per env, got an array of shape {array.shape}")
            return array[new]

        some = map_tree(rows, action)
        if new:
            self.pool.send(some, np.asarray(ids)[new])
            self.pool.recv_into(self, "_batch")
            self._keep(self._batch)
        kept = dict(self._kept)
        obs, *others, infos = zip(*[kept.pop(int(one)) for one in ids], strict=True)
        reward, terminated, truncated = map(np.stack, others)
        step = _stack(obs), reward, terminated, truncated, _objects(list(infos))
        self._kept = kept
        return step

    # ---- the envs ----------------------------------------------------------------------------

    def seed(self, seed: int | Sequence[int] | None = None) -> list[list[int] | None]:
        """Seeds and resets the envs, and seeds their spaces: env i with ``seed + i``, or from a list."""
        if seed is None:
            return [None] * self.env_num
        seeds = check_seeds(seed, range(self.env_num))
        self.reset(seed=seeds)
        return [[one] for one in seeds if one is not None]

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:
        """An attribute of each env; spaces are the ones that collectors draw from."""
        ids = [int(one) for one in self._wrap_id(id)]
        if key in self._spaces:
            return [self._spaces[key][one] for one in ids]
        return list(self.pool.get_attr(key, ids))

    def set_env_attr(self, key: str, value: Any, id: Any = None) -> None:
        """Sets an attribute of each env to the same value."""
        ids = [int(one) for one in self._wrap_id(id)]
        self.pool.set_attr(key, [value] * len(ids), ids)

    def render(self, **kwargs: Any) -> list[Any]:
        """A picture of each env."""
        return list(self.pool.render(**kwargs))

    def close(self) -> None:
        """Closes the pool."""
        self.pool.close()
        self._batch = self._unfinished = None
        self._kept.clear()

    def _seed_spaces(self, seeds: Sequence[int | None], env_ids: Sequence[int] | None = None) -> None:
        for env_id, seed in zip(range(self.env_num) if env_ids is None else env_ids, seeds, strict=True):
            for one in self._spaces.values():
                one[env_id].seed(seed)


def _check(pool: Any) -> None:
    check_pool(pool, "PoolVectorEnv", "Tianshou")
    if pool.settings.autoreset == "same_step":
        raise UnsupportedError(
            "PoolVectorEnv: Tianshou resets envs itself, and stores the last observation of an episode: "
            "make(..., autoreset='next_step')"
        )
    if isinstance(pool.single_observation_space, spaces.Tuple):
        raise SpaceError("PoolVectorEnv: Tianshou takes no Tuple observations: use a Dict or an array")


def _observations(obs: Any) -> np.ndarray:
    """Observations as Tianshou stacks them: of a Dict space an array of dicts, of a Text space an array of texts."""
    if isinstance(obs, dict):
        first, *_ = leaves(obs)
        return _objects([map_tree(operator.itemgetter(i), obs) for i in range(len(first))])
    if isinstance(obs, tuple):  # of a space that has no arrays
        return np.array(obs) if all(isinstance(one, str) for one in obs) else _objects(list(obs))
    array: np.ndarray = obs
    return array


def _stack(rows: Sequence[Any]) -> np.ndarray:
    """Stacks single rows of such arrays."""
    return np.stack(rows) if isinstance(rows[0], np.ndarray | np.generic) else _objects(list(rows))


def _step(batch: Any) -> Step:
    obs, reward, terminated, truncated, info = batch
    return _observations(obs), reward, terminated, truncated, _infos(info)


def _infos(info: Mapping[str, Any]) -> np.ndarray:
    """One dict per row: what the env told, and its id. Tianshou counts steps and returns itself."""
    rows = zip(GymnasiumPool.info_rows(info), info["env_id"].tolist(), strict=True)
    return _objects([{**row, "env_id": env_id} for row, env_id in rows])


def _objects(rows: list[Any]) -> np.ndarray:
    out = np.empty(len(rows), object)
    out[:] = rows
    return out
