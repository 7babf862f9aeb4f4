"""``make_vec_env``: a pool and its ``VecEnv`` in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from stepmill.errors import ConfigError
from stepmill.interop.sb3.vec_env import StepmillVecEnv
from stepmill.make import make

__all__ = ["make_vec_env"]

# Arguments of SB3's function, and of stepmill.make, that have no place here, with what to do instead.
_ELSEWHERE = dict.fromkeys(
    ("start_index", "wrapper_class", "wrapper_kwargs", "monitor_kwargs", "vec_env_cls", "vec_env_kwargs"),
    "Stable-Baselines3's own make_vec_env(..., vec_env_cls=StepmillVecEnv) takes it",
) | {"num_envs": "the number of envs is n_envs, as in Stable-Baselines3"}


def make_vec_env(
    env_id: Any,
    n_envs: int = 1,
    seed: int | None = None,
    *,
    monitor_dir: str | os.PathLike[str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> StepmillVecEnv:
    """Makes envs for Stable-Baselines3, as its function of this name does.

    Args:
        env_id: What ``stepmill.make`` takes: an id, an env class, a function that makes an env, or a list of these.
        n_envs: How many envs.
        seed: Env i is seeded with ``seed + i`` in the next reset; by default with a random seed.
        monitor_dir: A folder for files as SB3's ``Monitor`` writes them, one per env: ``load_results`` reads them.
        env_kwargs: The env's own configuration.
        **settings: Whatever else ``stepmill.make`` takes; the env's own configuration may be here as well.
    """
    for name in _ELSEWHERE.keys() & settings.keys():
        raise ConfigError(f"make_vec_env: got {name}: {_ELSEWHERE[name]}")
    pool = make(env_id, num_envs=n_envs, **{"autoreset": "same_step", **settings, **(env_kwargs or {})})
    vec_env = StepmillVecEnv(pool, monitor_dir=monitor_dir)
    if seed is not None:
        vec_env.action_space.seed(seed)
    vec_env.seed(seed)
    return vec_env
