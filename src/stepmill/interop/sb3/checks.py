"""Pools for SB3, and which ones it can train on."""

from __future__ import annotations

from typing import Any, NoReturn

from stepmill.errors import ConfigError, StepmillError, UnsupportedError
from stepmill.make import make, make_spec
from stepmill.values.spaces import flatten
from stepmill.values.trees import tree_of
from stepmill.views.gymnasium import GymnasiumPool
from stepmill.views.pool import PoolView


def make_pool(task_id: Any, **arguments: Any) -> Any:
    """A pool for SB3, which ``check_pool`` is to see."""
    try:
        return make(task_id, **{"autoreset": "same_step", **arguments})
    except UnsupportedError:
        _refuse_players_of(task_id, arguments)
        raise


def check_pool(given: Any) -> GymnasiumPool:
    """The pool, if it can be a ``VecEnv``; else an error that says what to pass to ``make``."""
    if not isinstance(given, GymnasiumPool):
        got = "a pool of another view" if isinstance(given, PoolView) else repr(given)
        raise ConfigError(
            f"StepmillVecEnv: expected a pool of stepmill.make(..., env_type='gymnasium') or a list of functions that "
            f"make envs, got {got}"
        )
    if given.num_players > 1:
        _refuse_players(given.spec.id, given.num_players)
    if given.is_async:
        raise ConfigError(
            f"StepmillVecEnv: SB3 steps all envs at once, but the pool has batch_size={given.batch_size} of "
            f"num_envs={given.num_envs}: leave out batch_size in make(...)"
        )
    if given.settings.autoreset != "same_step":
        raise ConfigError(
            f"StepmillVecEnv: expected a pool with autoreset='same_step', got {given.settings.autoreset!r}: pass "
            "autoreset='same_step' to make(...)"
        )
    if given.settings.output != "numpy":
        raise ConfigError(
            f"StepmillVecEnv: SB3 takes numpy arrays, but the pool has output={given.settings.output!r}: leave out "
            "output in make(...)"
        )
    space = given.single_observation_space
    if flatten(space).object_spaces or any(isinstance(part, dict | tuple) for part in _parts(space)):
        raise UnsupportedError(
            f"StepmillVecEnv: SB3 takes observations that are arrays, or a Dict or Tuple of arrays, got {space}: pass "
            "an env with a wrapper that flattens them to make(...)"
        )
    return given


def _refuse_players_of(task_id: Any, arguments: dict[str, Any]) -> None:
    """Against the pool's advice to use another autoreset mode, with which SB3 could not train either."""
    try:
        spec = make_spec(task_id, **{**arguments, "autoreset": "next_step"})
    except StepmillError:
        return
    if spec.config["max_num_players"] > 1:
        _refuse_players(spec.id, spec.config["max_num_players"])


def _refuse_players(env: str, players: int) -> NoReturn:
    raise UnsupportedError(
        f"StepmillVecEnv: SB3 trains one player per env, and {env} has {players}: pass an env of one player to "
        "make(...), such as one that plays the others itself"
    ) from None


def _parts(space: Any) -> list[Any]:
    tree = tree_of(space)
    return list(tree.values()) if isinstance(tree, dict) else list(tree) if isinstance(tree, tuple) else []
