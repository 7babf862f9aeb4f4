"""Pools for SB3, and which ones it can train on."""

from __future__ import annotations

from typing import Any

from stepmill.errors import ConfigError, StepmillError, UnsupportedError
from stepmill.interop import pools
from stepmill.make import make, make_spec
from stepmill.values.spaces import flatten
from stepmill.values.trees import tree_of
from stepmill.views.gymnasium import GymnasiumPool

_USER = "StepmillVecEnv"


def make_pool(task_id: Any, **arguments: Any) -> Any:
    """A pool for SB3, which ``check_pool`` is to see."""
    try:
        return make(task_id, **{"autoreset": "same_step", **arguments})
    except UnsupportedError:
        _refuse_players_of(task_id, arguments)
        raise


def check_pool(given: Any) -> GymnasiumPool:
    """The pool, if it can be a ``VecEnv``; else an error that says what to pass to ``make``."""
    pool = pools.check_pool(given, _USER, "SB3", others=" or a list of functions that make envs")
    if pool.is_async:
        raise ConfigError(
            f"{_USER}: SB3 steps all envs at once, but the pool has batch_size={pool.batch_size} of "
            f"num_envs={pool.num_envs}: leave out batch_size in make(...)"
        )
    if pool.settings.autoreset != "same_step":
        raise ConfigError(
            f"{_USER}: expected a pool with autoreset='same_step', got {pool.settings.autoreset!r}: pass "
            "autoreset='same_step' to make(...)"
        )
    space = pool.single_observation_space
    if flatten(space).object_spaces or any(isinstance(part, dict | tuple) for part in _parts(space)):
        raise UnsupportedError(
            f"{_USER}: SB3 takes observations that are arrays, or a Dict or Tuple of arrays, got {space}: pass "
            "an env with a wrapper that flattens them to make(...)"
        )
    return pool


def _refuse_players_of(task_id: Any, arguments: dict[str, Any]) -> None:
    """Against the pool's advice to use another autoreset mode, with which SB3 could not train either."""
    try:
        spec = make_spec(task_id, **{**arguments, "autoreset": "next_step"})
    except StepmillError:
        return
    if spec.config["max_num_players"] > 1:
        pools.refuse_players(_USER, "SB3", spec.id, spec.config["max_num_players"])


def _parts(space: Any) -> list[Any]:
    tree = tree_of(space)
    return list(tree.values()) if isinstance(tree, dict) else list(tree) if isinstance(tree, tuple) else []
