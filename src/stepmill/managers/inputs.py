"""What callers pass to a manager, checked: env ids, parameters of resets, seeds, folders."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from stepmill.errors import ConfigError, EnvIdError, InputError
from stepmill.values.arguments import whole_number

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
