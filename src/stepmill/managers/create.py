"""Makes managers and their envs from configurations."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import read_cfg
from stepmill.errors import ConfigError
from stepmill.managers.base_manager import BaseEnvManager
from stepmill.managers.subprocess import (
    AsyncSubprocessEnvManager,
    RayEnvManager,
    SubprocessEnvManager,
    SyncSubprocessEnvManager,
)

MANAGERS: dict[str, type[BaseEnvManager]] = {
    "base": BaseEnvManager,
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
    "ray": RayEnvManager,
    "BaseEnvManager": BaseEnvManager,
    "SubprocessEnvManager": SubprocessEnvManager,
    "SyncSubprocessEnvManager": SyncSubprocessEnvManager,
    "AsyncSubprocessEnvManager": AsyncSubprocessEnvManager,
    "RayEnvManager": RayEnvManager,
}


def create_env_manager(cfg: Mapping[str, Any], env_fn: Any = None) -> BaseEnvManager:
    """The manager that ``cfg["type"]`` names: one of ``MANAGERS``, such as ``"base"``, ``"subprocess"`` or ``"ray"``.

    Args:
        cfg: The configuration of the manager. ``env_fn``, ``env_cfg`` and ``env_num`` may be in it;
            ``import_names`` are modules to import first.
        env_fn: A function or a list of functions; required if ``cfg`` has none.
    """
    given = read_cfg("create_env_manager", cfg, ["type"])
    for module in given.get("import_names", ()):
        importlib.import_module(module)
    kind = given["type"]
    if kind not in MANAGERS:
        raise ConfigError(f"create_env_manager: type: expected one of {', '.join(MANAGERS)}, got {kind!r}")
    fn = given.get("env_fn") if env_fn is None else env_fn
    return MANAGERS[kind](fn, given.get("env_cfg"), given.get("env_num"), cfg=cfg)


def get_vec_env_setting(
    cfg: Mapping[str, Any], collect: bool = True, eval_: bool = True
) -> tuple[Callable[[Any], Any], list[Any] | None, list[Any] | None]:
    """What a run needs to make its managers: the env's class, and the cfgs of its collectors and evaluators.

    Args:
        cfg: The configuration of the env. ``type`` is an env class, ``"package.module:Class"``, or an id that ``make``
            knows; ``import_names`` are modules to import first.
        collect: Whether to make cfgs for collectors.
        eval_: Whether to make cfgs for evaluators.
    """
    given = read_cfg("get_vec_env_setting", cfg, ["type"])
    for module in given.get("import_names", ()):
        importlib.import_module(module)
    env_fn = _find_env(given["type"])
    owner: Any = env_fn if hasattr(env_fn, "create_collector_env_cfg") else BaseEnv
    collectors, evaluators = owner.create_collector_env_cfg, owner.create_evaluator_env_cfg
    return env_fn, collectors(cfg) if collect else None, evaluators(cfg) if eval_ else None


def _find_env(kind: Any) -> Callable[[Any], Any]:
    if callable(kind):
        return kind  # type: ignore[no-any-return]
    if not isinstance(kind, str):
        raise ConfigError(f"get_vec_env_setting: type: expected an env class, a path to one or an id, got {kind!r}")
    module, _, name = kind.rpartition(":")
    if module:
        found = getattr(importlib.import_module(module), name, None)
        if found is not None:  # else "module:Id-v0", as Gymnasium writes it
            return found  # type: ignore[no-any-return]
    from stepmill.envs.adapters.ding_env_wrapper import DingEnvWrapper

    return functools.partial(DingEnvWrapper, kind)
