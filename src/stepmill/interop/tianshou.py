"""Pools as vector envs of Tianshou: its collectors, wrappers and trainers take a ``PoolVectorEnv``."""

from __future__ import annotations

import copy
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError, SpaceError, UnsupportedError
from stepmill.make import make_gymnasium
from stepmill.optional import TIANSHOU, require
from stepmill.pool.infos import info_of_row
from stepmill.pool.settings import check_seeds
from stepmill.trees import leaves, map_tree
from stepmill.views.gymnasium import GymnasiumPool

require(*TIANSHOU, "stepmill.interop.tianshou")

from tianshou.env import BaseVectorEnv  # noqa: E402

__all__ = ["PoolVectorEnv", "make_vector_env"]

# What the engine tells of every row. Tianshou counts steps and returns itself.
_ENGINE_KEYS = frozenset({"env_id", "elapsed_step", "episode_return", "episode_length"})


def make_vector_env(task_id: Any, **arguments: Any) -> PoolVectorEnv:
    """``PoolVectorEnv(stepmill.make(task_id, ...))``."""
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
        self._seed_spaces(pool.config["seed"])

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self.pool.closed

    @property
    def waiting_id(self) -> list[int]:
        """The envs that are under way."""
        return list(self.pool._engine.in_flight_ids)

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

        A seed is for env 0, and env i has ``seed + i``.
        """
        ids = None if env_id is None else self._wrap_id(env_id)
        seed = kwargs.get("seed")
        obs, info = self.pool.reset(None if ids is None else np.asarray(ids), **kwargs)
        if seed is not None:
            chosen = range(self.env_num) if ids is None else ids
            self._seed_spaces(check_seeds(seed, chosen, allow_none=True), chosen)
        return _observations(obs), _infos(info)

    def step(self, action: Any, id: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Steps all envs, or those of ``id``.

        In async mode it returns the ``wait_num`` envs that are ready first, among all that are under way. ``None``
        instead of an action sends nothing.
        """
        if action is None:
            obs, reward, terminated, truncated, info = self.pool.recv()
        else:
            obs, reward, terminated, truncated, info = self.pool.step(action, np.asarray(self._wrap_id(id)))
        return _observations(obs), reward, terminated, truncated, _infos(info)

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

    def _seed_spaces(self, seeds: Sequence[int | None], env_ids: Sequence[int] | None = None) -> None:
        for env_id, seed in zip(range(self.env_num) if env_ids is None else env_ids, seeds, strict=True):
            for one in self._spaces.values():
                one[env_id].seed(seed)


def _check(pool: Any) -> None:
    if not isinstance(pool, GymnasiumPool):
        raise ConfigError(f"PoolVectorEnv: expected a pool of stepmill.make(..., 'gymnasium'), got {pool!r}")
    if pool.config["autoreset"] == "same_step":
        raise UnsupportedError(
            "PoolVectorEnv: Tianshou resets envs itself, and stores the last observation of an episode: "
            "make(..., autoreset='next_step')"
        )
    if pool._settings.output != "numpy":
        raise ConfigError(
            f"PoolVectorEnv: Tianshou takes numpy arrays, but the pool has output={pool._settings.output!r}: leave out "
            "output in make(...)"
        )
    if pool.config["max_num_players"] > 1:
        raise UnsupportedError("PoolVectorEnv: Tianshou's vector envs have one player per env")
    if isinstance(pool.single_observation_space, spaces.Tuple):
        raise SpaceError("PoolVectorEnv: Tianshou takes no Tuple observations: use a Dict or an array")


def _observations(obs: Any) -> np.ndarray:
    """Observations as Tianshou stacks them: of a Dict space an array of dicts."""
    if not isinstance(obs, dict):
        array: np.ndarray = obs
        return array
    return _objects([map_tree(operator.itemgetter(i), obs) for i in range(len(next(leaves(obs))))])


def _infos(info: Mapping[str, Any]) -> np.ndarray:
    """One dict per row: what the env told, and its id."""
    own = {key: values for key, values in info.items() if key not in _ENGINE_KEYS}
    return _objects([{**info_of_row(own, i), "env_id": env_id} for i, env_id in enumerate(info["env_id"].tolist())])


def _objects(rows: list[Any]) -> np.ndarray:
    out = np.empty(len(rows), object)
    out[:] = rows
    return out
