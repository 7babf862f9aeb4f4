"""A Stable-Baselines3 ``VecEnv`` over a pool: what SB3 trains on, without a line of glue.

``make_vec_env`` makes a pool and its ``VecEnv`` in one call; ``StepmillVecEnv`` takes a pool that exists, or functions
that make envs, as SB3's own ``DummyVecEnv`` and ``SubprocVecEnv`` do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from gymnasium.wrappers import TimeLimit

from stepmill.errors import ConfigError
from stepmill.registry.factories import EnvFactory
from stepmill.registry.records import find, python_twin
from stepmill.settings import MOST_ENVS, SEED_LIMIT, SETTINGS
from stepmill.system.optional import SB3, require
from stepmill.values.arguments import whole_number

require(*SB3, "stepmill.interop.sb3")

from stable_baselines3.common import env_util  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv  # noqa: E402

from stepmill.interop.sb3.checks import make_pool  # noqa: E402
from stepmill.interop.sb3.vec_env import StepmillVecEnv  # noqa: E402

__all__ = ["StepmillVecEnv", "make_vec_env"]

# The names that stepmill.make takes for itself. An env may have arguments of the same names.
_TAKEN = {*SETTINGS, "task_id", "env_type", "env_config"}
_BACKENDS = {DummyVecEnv: "inline", SubprocVecEnv: "process"}  # where their envs run


def make_vec_env(
    env_id: Any,
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | os.PathLike[str] | None = None,
    wrapper_class: Callable[..., Any] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    vec_env_cls: type[Any] | None = None,
    vec_env_kwargs: Mapping[str, Any] | None = None,
    monitor_kwargs: Mapping[str, Any] | None = None,
    wrapper_kwargs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> StepmillVecEnv:
    """Makes envs for Stable-Baselines3, as its function of this name does.

    Args:
        env_id: What ``stepmill.make`` takes: an id, an env class, a function that makes an env, or a list of these.
        n_envs: How many envs.
        seed: Env i is seeded with ``seed + i`` in the next reset; by default with a random seed.
        start_index: The number of the first env, in the names of its files.
        monitor_dir: A folder for files as SB3's ``Monitor`` writes them, one per env: ``load_results`` reads them.
        wrapper_class: Wraps each env, outside of a ``Monitor``, as in SB3. The envs are Python envs then.
        env_kwargs: The env's own configuration, whatever its names. Of an id, ``max_episode_steps`` is the time limit.
        vec_env_cls: ``StepmillVecEnv`` or a class derived from it. SB3's own two say where the envs of a
            ``StepmillVecEnv`` run: ``DummyVecEnv`` means ``backend="inline"``, ``SubprocVecEnv`` ``backend="process"``.
        vec_env_kwargs: Settings of the pool; they may be arguments themselves.
        monitor_kwargs: Arguments of each env's ``Monitor``. The envs are Python envs then.
        wrapper_kwargs: Arguments of ``wrapper_class``.
        **settings: Whatever else ``stepmill.make`` takes; the env's own configuration may be here as well.
    """
    n_envs = whole_number("n_envs", n_envs, 1, MOST_ENVS)
    if isinstance(env_id, list | tuple) and n_envs == 1:
        n_envs = len(env_id)
    if seed is not None:
        seed = whole_number("seed", seed, 0, SEED_LIMIT - n_envs)
    arguments = {**_named("vec_env_kwargs", vec_env_kwargs), **settings}
    if "num_envs" in arguments:
        raise ConfigError("make_vec_env: got num_envs: the number of envs is n_envs, as in Stable-Baselines3")
    vec_env_cls = _chosen_class(vec_env_cls, arguments)
    config = _named("env_kwargs", env_kwargs)
    if wrapper_class is not None or monitor_kwargs:
        wrapped: StepmillVecEnv = env_util.make_vec_env(
            **_in_python(env_id, config, arguments),
            n_envs=n_envs,
            seed=seed,
            start_index=start_index,
            monitor_dir=monitor_dir,
            wrapper_class=wrapper_class,
            wrapper_kwargs=_named("wrapper_kwargs", wrapper_kwargs),
            monitor_kwargs=_named("monitor_kwargs", monitor_kwargs),
            vec_env_cls=vec_env_cls,
        )
        return wrapped
    _add_config(arguments, config, env_id, n_envs)
    pool = make_pool(env_id, num_envs=n_envs, **arguments)
    try:
        vec_env = vec_env_cls(pool, monitor_dir=monitor_dir, start_index=start_index)
    except BaseException:
        pool.close()
        raise
    if seed is not None:
        vec_env.action_space.seed(seed + start_index)
    vec_env.seed(seed)
    return vec_env


def _chosen_class(given: Any, arguments: dict[str, Any]) -> type[StepmillVecEnv]:
    """The class to make. SB3's own classes only choose the backend, where that is not chosen already."""
    if given is None:
        return StepmillVecEnv
    if not isinstance(given, type) or not (given in _BACKENDS or issubclass(given, StepmillVecEnv)):
        raise ConfigError(
            "vec_env_cls: expected StepmillVecEnv or a class derived from it, or DummyVecEnv or SubprocVecEnv, got "
            f"{given!r}: Stable-Baselines3's own make_vec_env makes others"
        )
    if given not in _BACKENDS:
        return given
    arguments.setdefault("backend", _BACKENDS[given])
    arguments.pop("start_method", None)  # of SubprocVecEnv; our workers are forked from a server without threads
    return StepmillVecEnv


def _in_python(env_id: Any, config: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """What SB3's function takes for Python envs, which it can wrap: the env's own arguments apart from the pool's."""
    if isinstance(env_id, list | tuple) or "env_config" in arguments:
        raise ConfigError(
            "make_vec_env: wrapper_class and monitor_kwargs are for envs of one kind, got a list: pass functions that "
            "make and wrap the envs"
        )
    own = arguments.keys() - _TAKEN
    if isinstance(env_id, str):
        env_id = _python_env(env_id)
        own |= arguments.keys() & {"max_episode_steps"}  # inside of the wrappers, as gymnasium.make applies it
    config = {**{key: arguments[key] for key in own}, **config}
    settings = {key: value for key, value in arguments.items() if key not in own}
    return {"env_id": env_id, "env_kwargs": config, "vec_env_kwargs": settings}


def _python_env(id: str) -> Callable[..., Any]:
    """A function that makes one env of an id, in Python: native envs cannot be wrapped."""
    record, factory = python_twin(find(id), "wrapper_class and monitor_kwargs need Python envs")

    def make_env(max_episode_steps: int | None = None, **given: Any) -> Any:
        config, limit = {**record.config, **given}, max_episode_steps or record.max_episode_steps
        if isinstance(factory, EnvFactory):
            config, limit = factory.limited(config, max_episode_steps, record.max_episode_steps)
        env = factory(**config)
        return env if limit is None else TimeLimit(env, limit)

    return make_env


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
        single = arguments.get("env_config", [{}] * n_envs)
        if isinstance(single, list | tuple):  # else `make` says what is wrong with it
            single = [{**own, **one} if isinstance(one, Mapping) else one for one in single]
        arguments["env_config"] = single
