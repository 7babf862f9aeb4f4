"""What callers pass to a manager, checked: its envs and settings, and the arguments of its methods."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stepmill.envs.configs import copy_cfg
from stepmill.errors import ConfigError, EnvIdError, InputError, UnsupportedError
from stepmill.registry.factories import check_keys
from stepmill.settings import Ray, refuse_options_of_ray
from stepmill.system.interpreters import interpreter
from stepmill.values.arguments import one_of, real_number, seconds, true_or_false, whole_number

DEFAULTS: dict[str, Any] = {
    "episode_num": math.inf,
    "max_retry": 1,
    "retry_type": "reset",
    "retry_waiting_time": 0.1,
    "auto_reset": True,
    "step_timeout": None,
    "reset_timeout": None,
    "output": "numpy",
    "shared_memory": True,
    "wait_num": math.inf,
    "step_wait_timeout": None,
    "connect_timeout": 60,
    "num_workers": None,
    "python": None,
    # Keys of DI-engine's configurations that have no effect here.
    "context": "fork",
    "copy_on_get": True,
    "reset_inplace": False,
}
# Keys that a cfg may have for other readers, such as `create_env_manager`.
_IGNORED_KEYS = frozenset({"type", "import_names", "cfg_type", "env_fn", "env_cfg", "env_num"})


@dataclass(frozen=True)
class EnvRecipe:
    """Makes one env, with a copy of the cfg: the caller's stays as it was."""

    env_fn: Callable[..., Any]
    args: tuple[Any, ...] = ()

    def __call__(self) -> Any:
        return self.env_fn(*copy.deepcopy(self.args))


@dataclass(frozen=True)
class ManagerSettings:
    """How a manager runs its envs; see ``default_config``."""

    episode_num: float
    max_retry: int
    retry_type: str
    retry_waiting_time: float
    auto_reset: bool
    step_timeout: float | None
    reset_timeout: float | None
    start_timeout: float
    output: str
    shared_memory: bool
    wait_num: float
    wait_timeout: float | None
    num_workers: int | None
    python: str | None  # the interpreter of the workers, if it is not the caller's
    ray: Ray | None  # of a manager whose envs are on a cluster


def read_recipes(env_fn: Any, env_cfg: Any, env_num: Any) -> list[EnvRecipe]:
    """From ``(env_fn, env_cfg, env_num)``, or from a list of functions that each make an env."""
    if callable(env_fn):
        if env_cfg is None or isinstance(env_cfg, str | Mapping):
            raise ConfigError(f"env_cfg: expected a list of configurations, one per env, got {env_cfg!r}")
        cfgs = list(env_cfg)
        count = len(cfgs) if env_num is None else whole_number("env_num", env_num, 1)
        if len(cfgs) != count or not cfgs:
            raise ConfigError(f"env_cfg: expected env_num={count} configurations, one per env, got {len(cfgs)}")
        _check_takes_cfg(env_fn)
        return [EnvRecipe(env_fn, (copy_cfg(f"env_cfg[{i}]", cfg),)) for i, cfg in enumerate(cfgs)]
    if not isinstance(env_fn, Sequence) or not env_fn or not all(callable(one) for one in env_fn):
        raise ConfigError(f"env_fn: expected a function, or a list of functions that each make an env, got {env_fn!r}")
    if env_cfg is not None:
        raise ConfigError("env_cfg: expected None with a list of functions, which hold their own configurations")
    if env_num is not None and env_num != len(env_fn):
        raise ConfigError(f"env_num: expected {len(env_fn)}, one per function of env_fn, got {env_num!r}")
    return [EnvRecipe(one) for one in env_fn]


def asked_by_envs(recipes: Sequence[EnvRecipe]) -> dict[str, Any]:
    """The settings of the manager that the cfgs of its envs say: ``shared_memory``, the same in all of them."""
    cfgs = [cfg for one in recipes for cfg in one.args if isinstance(cfg, Mapping)]
    if not any("shared_memory" in cfg for cfg in cfgs):
        return {}
    asked = [
        true_or_false("env_cfg: shared_memory", cfg.get("shared_memory", DEFAULTS["shared_memory"])) for cfg in cfgs
    ]
    if len(set(asked)) > 1:
        raise ConfigError(
            f"env_cfg: expected the same shared_memory for all envs, got {asked}. Or set it in the manager's own cfg, "
            "which overrides these"
        )
    return {"shared_memory": asked[0]}


def _check_takes_cfg(env_fn: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(env_fn, follow_wrapped=False)
    except (TypeError, ValueError):  # a builtin without one: its call will show
        return
    try:
        signature.bind({})
    except TypeError as error:
        name = getattr(env_fn, "__name__", type(env_fn).__name__)
        raise ConfigError(
            f"env_fn: it is called with one argument, the cfg of its env, but {name} takes {signature}. Pass a "
            f"function that takes a cfg, such as lambda cfg: {name}(...)"
        ) from error


def read_settings(
    name: str, defaults: Mapping[str, Any], in_processes: bool, cfg: Any, given: Mapping[str, Any]
) -> ManagerSettings:
    """Checks a configuration. ``given``: the other keyword arguments of the constructor."""
    if cfg is not None and not isinstance(cfg, Mapping):
        raise ConfigError(f"{name}: cfg: expected a dict, got {cfg!r}")
    own = {key: value for key, value in (cfg or {}).items() if key not in _IGNORED_KEYS}
    if "backend" in defaults:
        refuse_options_of_ray({**own, **given}, defaults)
    check_keys(name, {**own, **given}, defaults)
    values = {**defaults, **own, **given}
    for key in ("step_timeout", "reset_timeout"):
        if values[key] is not None and not in_processes:
            raise UnsupportedError(
                f"{name}: {key}: an env in this process cannot be interrupted: use SubprocessEnvManager"
            )
    if values["python"] is not None and not in_processes:
        raise UnsupportedError(
            f"{name}: python: another interpreter runs envs in worker processes: use SubprocessEnvManager"
        )
    one_of(f"{name}: retry_type", values["retry_type"], ("reset", "renew"))
    one_of(f"{name}: output", values["output"], ("numpy", "torch"))
    one_of(
        f"{name}: context", values["context"], ("fork", "spawn", "forkserver")
    )  # workers start the same way with each
    true_or_false(f"{name}: copy_on_get", values["copy_on_get"])  # what is handed out is always a copy
    return ManagerSettings(
        episode_num=_count(f"{name}: episode_num", values["episode_num"]),
        max_retry=whole_number(f"{name}: max_retry", values["max_retry"], 0),
        retry_type=values["retry_type"],
        retry_waiting_time=real_number(f"{name}: retry_waiting_time", values["retry_waiting_time"], 0.0),
        auto_reset=true_or_false(f"{name}: auto_reset", values["auto_reset"]),
        step_timeout=_seconds(f"{name}: step_timeout", values["step_timeout"]),
        reset_timeout=_seconds(f"{name}: reset_timeout", values["reset_timeout"]),
        start_timeout=seconds(f"{name}: connect_timeout", values["connect_timeout"]),
        output=values["output"],
        shared_memory=true_or_false(f"{name}: shared_memory", values["shared_memory"]),
        # In this process envs run one after another: all results are there when `step` looks.
        wait_num=_count(f"{name}: wait_num", values["wait_num"]) if in_processes else math.inf,
        wait_timeout=None
        if values["step_wait_timeout"] is None
        else real_number(f"{name}: step_wait_timeout", values["step_wait_timeout"], 0.0),
        num_workers=_workers(f"{name}: num_workers", values["num_workers"]) if in_processes else None,
        ray=_ray(f"{name}: backend", values["backend"]) if "backend" in defaults else None,
        python=None if values["python"] is None else interpreter(f"{name}: python", values["python"]),
    )


def _count(name: str, value: Any) -> float:
    """A whole number, or "inf" for no limit."""
    if value in ("inf", math.inf):
        return math.inf
    return whole_number(name, value, 1)


def _ray(name: str, value: Any) -> Ray:
    if isinstance(value, Ray):
        return value
    if value == "ray":
        return Ray()
    raise ConfigError(f"{name}: expected 'ray' or stepmill.Ray(...), got {value!r}")


def _workers(name: str, value: Any) -> int | None:
    return None if value is None else whole_number(name, value, 1)


def _seconds(name: str, value: Any) -> float | None:
    return None if value is None else seconds(name, value)


# ---- the arguments of its methods ----------------------------------------------------------------

ResetParams = Mapping[int, Mapping[str, Any] | None]  # by env id; None: the same as last time
_SEED_LIMIT = 2**63


def read_ids(ids: Any, env_num: int) -> list[int]:
    """Env ids, from one or several; each must be in range and given once. None: all envs."""
    if ids is None:
        return list(range(env_num))
    if hasattr(ids, "__index__") and not getattr(ids, "shape", ()):
        ids = [ids]
    if not isinstance(ids, Iterable):
        raise EnvIdError(f"env id: expected a whole number or a list of them, got {ids!r}")
    out: dict[int, None] = {}
    for one in ids:
        try:
            env_id = operator.index(one)
        except TypeError:
            env_id = None
        if env_id is None or isinstance(one, bool):
            raise EnvIdError(f"env id: expected a whole number, got {one!r}")
        if not 0 <= env_id < env_num:
            raise EnvIdError(f"env id {one} is out of range [0, {env_num})")
        if env_id in out:
            raise EnvIdError(f"env id {one} is given twice")
        out[env_id] = None
    return list(out)


def read_actions(actions: Any, env_id: Any, env_num: int) -> Mapping[int, Any]:
    """Actions by env id: from a list with one per id of ``env_id``, or a dict of these ids."""
    ids = read_ids(env_id, env_num)
    if isinstance(actions, Mapping):
        if set(actions) != set(ids):
            raise InputError(f"step: expected actions for the envs {ids}, got them for {list(actions)}")
        return actions
    try:
        rows = list(itertools.islice(actions, len(ids) + 1))  # there may be no end of them
    except TypeError:
        rows = None
    if rows is None or len(rows) != len(ids):
        got = f"{actions!r}" if rows is None else "more" if len(rows) > len(ids) else f"{len(rows)}"
        raise InputError(f"step: expected a list of {len(ids)} actions, one per env of env_id, got {got}")
    return dict(zip(ids, rows, strict=True))


def read_reset_params(reset_param: Any, env_id: Any, env_num: int) -> ResetParams:
    """The envs to reset, with their parameters: from a list with one dict per env, or a dict by env id."""
    if isinstance(reset_param, Mapping):
        ids = read_ids(list(reset_param) if env_id is None else env_id, env_num)
        if set(ids) != set(reset_param):
            raise InputError(f"reset: expected parameters for the envs {ids}, got them for {list(reset_param)}")
        params = dict(reset_param)
    else:
        ids = read_ids(env_id, env_num)
        if reset_param is not None and not isinstance(reset_param, Sequence):
            raise InputError(f"reset: expected a list of dicts, or a dict by env id, got {reset_param!r}")
        given = [None] * len(ids) if reset_param is None else list(reset_param)
        if len(given) != len(ids):
            raise InputError(f"reset: expected {len(ids)} parameters, one per env, got {len(given)}")
        params = dict(zip(ids, given, strict=True))
    for one, param in params.items():
        if param is not None and not isinstance(param, Mapping):
            raise InputError(f"reset: expected a dict of arguments for env {one}, got {param!r}")
    return params


def read_seeds(seed: Any, env_id: Any, env_num: int) -> dict[int, int]:
    """Seeds by env id: from one number (env i gets seed + i), a list with one per env, or a dict by env id."""
    if isinstance(seed, Mapping):
        ids = read_ids(list(seed), env_num)
        seeds = list(seed.values())
    else:
        ids = read_ids(env_id, env_num)
        if isinstance(seed, Sequence) or np.ndim(seed) > 0:
            seeds = list(seed)
        else:
            first = whole_number("seed", seed, 0, _SEED_LIMIT - 1)
            seeds = [first + one for one in ids]
    if len(seeds) != len(ids):
        raise ConfigError(f"seed: expected {len(ids)} seeds, one per env, got {len(seeds)}")
    return {one: whole_number("seed", value, 0, _SEED_LIMIT - 1) for one, value in zip(ids, seeds, strict=True)}


def read_replay_paths(replay_path: Any, env_num: int) -> list[str]:
    """One folder per env, from one for all or a list."""
    paths = list(replay_path) if isinstance(replay_path, list | tuple) else [replay_path] * env_num
    if len(paths) != env_num:
        raise ConfigError(f"replay_path: expected {env_num} folders, one per env, got {len(paths)}")
    return ["./video" if path is None else str(path) for path in paths]
