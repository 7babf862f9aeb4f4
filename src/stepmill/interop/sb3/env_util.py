"""``make_vec_env``: a pool and its ``VecEnv`` in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stepmill.arguments import whole_number
from stepmill.errors import ConfigError
from stepmill.interop.sb3.checks import make_pool
from stepmill.interop.sb3.vec_env import StepmillVecEnv
from stepmill.pool.configurations import configs_of
from stepmill.pool.settings import MOST_ENVS, SEED_LIMIT, SETTINGS

__all__ = ["make_vec_env"]

# The names that stepmill.make takes for itself. An env may have arguments of the same names.
_TAKEN = {*SETTINGS, "task_id", "env_type", "env_config"}
_SB3S_OWN = ("wrapper_class", "vec_env_cls", "monitor_kwargs", "wrapper_kwargs")


def make_vec_env(
    env_id: Any,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | os.PathLike[str] | None = None,
    wrapper_class: Any = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vec_env_cls: Any = None,
    vec_env_kwargs: Mapping[str, Any] | None = None,
    monitor_kwargs: Any = None,
    wrapper_kwargs: Any = None,
    **settings: Any,
) -> StepmillVecEnv:
    """Makes envs for Stable-Baselines3, as its function of this name does.

    Args:
        env_id: What ``stepmill.make`` takes: an id, an env class, a function that makes an env, or a list of these.
        n_envs: How many envs.
        seed: Env i is seeded with ``seed + i`` in the next reset; by default with a random seed.
        start_index: The number of the first env, in the names of its files.
        monitor_dir: A folder for files as SB3's ``Monitor`` writes them, one per env: ``load_results`` reads them.
        wrapper_class: Not taken here: SB3's own function has wrappers, with ``vec_env_cls=StepmillVecEnv``.
        env_kwargs: The env's own configuration, whatever its names. Of an id, ``max_episode_steps`` is the time limit.
        vec_env_cls: Not taken: it is ``StepmillVecEnv``.
        vec_env_kwargs: Settings of the pool; they may be arguments themselves.
        monitor_kwargs: Not taken, like ``wrapper_class``.
        wrapper_kwargs: Not taken, like ``wrapper_class``.
        **settings: Whatever else ``stepmill.make`` takes; the env's own configuration may be here as well.
    """
    for name, given in zip(_SB3S_OWN, (wrapper_class, vec_env_cls, monitor_kwargs, wrapper_kwargs), strict=True):
        if given:
            own = "Stable-Baselines3's own make_vec_env(..., vec_env_cls=StepmillVecEnv)"
            raise ConfigError(f"make_vec_env: got {name}: {own} takes it")
    n_envs = whole_number("n_envs", n_envs, 1, MOST_ENVS)
    if isinstance(env_id, list | tuple) and n_envs == 1:
        n_envs = len(env_id)
    if seed is not None:
        seed = whole_number("seed", seed, 0, SEED_LIMIT - n_envs)
    arguments = {**_named("vec_env_kwargs", vec_env_kwargs), **settings}
    if "num_envs" in arguments:
        raise ConfigError("make_vec_env: got num_envs: the number of envs is n_envs, as in Stable-Baselines3")
    _add_config(arguments, _named("env_kwargs", env_kwargs), env_id, n_envs)
    pool = make_pool(env_id, num_envs=n_envs, **arguments)
    try:
        vec_env = StepmillVecEnv(pool, monitor_dir=monitor_dir, start_index=start_index)
    except BaseException:
        pool.close()
        raise
    if seed is not None:
        vec_env.action_space.seed(seed + start_index)
    vec_env.seed(seed)
    return vec_env


def _named(name: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise ConfigError(f"{name}: expected a dict with names as keys, got {given!r}")
    return dict(given)


def _add_config(arguments: dict[str, Any], config: dict[str, Any], env_id: Any, n_envs: int) -> None:
    """Adds the env's own configuration: to that of all envs, or to that of each if it has the name of a setting."""
    tasks = env_id if isinstance(env_id, list | tuple) else [env_id]
    if "max_episode_steps" in config and all(isinstance(one, str) for one in tasks):
        arguments["max_episode_steps"] = config.pop("max_episode_steps")  # as gymnasium.make takes it
    own = {key: config.pop(key) for key in _TAKEN & config.keys()}
    arguments.update(config)
    if own:
        arguments["env_config"] = configs_of(n_envs, own, arguments.get("env_config"))
