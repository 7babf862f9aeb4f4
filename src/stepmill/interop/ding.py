"""Registers our env managers with DI-engine, by name.

Importing this module is enough. A configuration of DI-engine can do that itself::

    create_config = dict(env_manager=dict(type="stepmill_subprocess", import_names=["stepmill.interop.ding"]), ...)

Names that end in ``_v2`` are for ``StepCollector`` and ``interaction_evaluator``; the others are for
``serial_pipeline`` and its collectors and evaluators.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.adapters.ding import build_env
from stepmill.envs.timestep import BaseEnvTimestep, more_fields
from stepmill.errors import ActionError, ConfigError, MissingPackageError
from stepmill.managers import AsyncSubprocessEnvManager, BaseEnvManager, SyncSubprocessEnvManager
from stepmill.managers.config import read_ids
from stepmill.managers.env_rows import any_abnormal

if importlib.util.find_spec("ding") is None:
    raise MissingPackageError("stepmill.interop.ding needs DI-engine 0.5.3, which is not installed")

# DI-engine registers its own managers on import, and only once per name: it has to come before `replace_managers`.
import ding.envs  # type: ignore[import-not-found]  # noqa: F401
import gym  # type: ignore[import-not-found]
import treetensor.numpy as tnp  # type: ignore[import-not-found]
from ding.utils import ENV_MANAGER_REGISTRY  # type: ignore[import-not-found]
from easydict import EasyDict  # type: ignore[import-untyped]
from treevalue import TreeValue  # type: ignore[import-not-found]
from treevalue.tree.common import create_storage  # type: ignore[import-not-found]

__all__ = [
    "MANAGERS",
    "DingAsyncSubprocessEnvManager",
    "DingBaseEnvManager",
    "DingBaseEnvManagerV2",
    "DingSubprocessEnvManager",
    "DingSubprocessEnvManagerV2",
    "replace_managers",
]

_DING_KEYS = frozenset({"type", "import_names", "cfg_type"})


class DingManager(BaseEnvManager):
    """What DI-engine expects of every manager, beyond what ours have.

    - The configuration is an ``EasyDict``. An unknown key is ignored with a warning: DI-engine merges configurations
      from several sources.
    - It also takes DI-engine's own envs; see ``DingAsBaseEnv``.
    - An env whose step was abnormal is reset at once, and that episode does not count: some of DI-engine's collectors
      and evaluators reset such an env, and some go on with it.
    """

    _resets_abnormal = True

    def __init__(self, env_fn: Sequence[Any], cfg: Mapping[str, Any] | None = None) -> None:
        given = {} if cfg is None else dict(cfg)
        unknown = given.keys() - self._defaults.keys() - _DING_KEYS
        if unknown:
            warnings.warn(
                f"{type(self).__name__}: the config keys {sorted(unknown)} have no effect. Known keys: "
                f"{', '.join(self._defaults)}",
                stacklevel=2,
            )
        known = {key: value for key, value in given.items() if key in self._defaults}
        for key in ("step_timeout", "reset_timeout"):
            if self._backend == "inline" and known.get(key) is not None:
                del known[key]
                warnings.warn(
                    f"{type(self).__name__}: {key} has no effect: an env in this process cannot be interrupted. "
                    "Use stepmill_subprocess for deadlines",
                    stacklevel=2,
                )
        try:
            # DI-engine gives a list, never a generator or a single function.
            functions = [functools.partial(build_env, one) if callable(one) else one for one in env_fn]
            super().__init__(functions, cfg=known)
        except KeyError as error:  # DI-engine would report it as an unknown manager
            raise ConfigError(str(error)) from error
        self._action_space: Any = None
        self._first_seed: int | None = None

    @classmethod
    def default_config(cls) -> Any:
        """The keys that ``cfg`` may have, with their defaults."""
        return EasyDict({**super().default_config(), "cfg_type": f"{cls.__name__}Dict"})

    def seed(self, seed: Any, dynamic_seed: bool | None = None, env_id: Any = None) -> None:  # type: ignore[override]
        """``BaseEnvManager.seed`` with DI-engine's order of arguments. Seeds ``action_space`` as well."""
        super().seed(seed, env_id, dynamic_seed)
        several = list(seed.values()) if isinstance(seed, Mapping) else seed
        self._first_seed = int(several[0]) if hasattr(several, "__len__") else int(seed)
        if self._action_space is not None:
            _seed(self._action_space, self._first_seed)

    @property
    def action_space(self) -> Any:
        """The action space of one env, always the same object; one of old ``gym`` for DI-engine's random policy."""
        if self._action_space is None:
            self._action_space = _gym_space(super().action_space)
            if self._first_seed is not None:
                _seed(self._action_space, self._first_seed)
        return self._action_space

    @property
    def _episode_num(self) -> float:
        """The number of episodes, for DI-engine's parallel collectors, which read it."""
        return self._settings.episode_num

    def reward_shaping(self, env_id: int, transitions: Any) -> Any:
        """What an env's own ``reward_shaping`` returns for its transitions."""
        return self._call_env("reward_shaping", env_id, transitions)

    def enable_save_figure(self, env_id: int, figure_path: str) -> None:
        """Calls an env's own ``enable_save_figure``."""
        self._call_env("enable_save_figure", env_id, figure_path)

    def _call_env(self, method: str, env_id: int, argument: Any) -> Any:
        pool = self._scheduler.pool
        return pool.call(method, read_ids([env_id], self.env_num), (argument,), {})[0]


def _seed(space: Any, seed: int) -> None:
    if hasattr(space, "seed"):  # an env may have None, or something of its own
        space.seed(seed)


def _gym_space(space: Any) -> Any:
    """DI-engine's random policy knows these two spaces of ``gym``, and draws differently from others."""
    if isinstance(space, spaces.Discrete):
        return gym.spaces.Discrete(int(space.n), start=int(space.start))
    if isinstance(space, spaces.MultiDiscrete) and not space.start.any():
        return gym.spaces.MultiDiscrete(space.nvec)
    return space


class DingBaseEnvManager(DingManager):
    """``stepmill_base``: ``BaseEnvManager`` in DI-engine."""


class DingSubprocessEnvManager(DingManager, SyncSubprocessEnvManager):
    """``stepmill_subprocess``: ``SyncSubprocessEnvManager`` in DI-engine."""


class DingAsyncSubprocessEnvManager(DingManager, AsyncSubprocessEnvManager):
    """``stepmill_async_subprocess``: ``AsyncSubprocessEnvManager`` in DI-engine."""


# ---- for middlewares: stacked observations out, actions in by position, trees back ---------------


class DingManagerV2(DingManager):
    """Observations are rows of one array, or of a tree of arrays, and so are actions.

    Actions go to the envs whose observations were handed out last, in that order, whatever became ready since then;
    ``step`` waits for all of them, and its results have the same order: DI-engine pairs them by position.

    DI-engine looks only at ``done`` here, so it is never true for an abnormal step: an evaluation does not count the
    episode, and goes on with the next one.
    """

    _handed_out: list[int] | None = None

    def __init__(self, env_fn: Sequence[Any], cfg: Mapping[str, Any] | None = None) -> None:
        super().__init__(env_fn, {**(cfg or {}), "wait_num": math.inf, "step_wait_timeout": None})
        if self._settings.output != "numpy":
            raise ConfigError(f"{type(self).__name__}: output: expected 'numpy', got {self._settings.output!r}")

    @property
    def ready_obs(self) -> Any:
        """The observations of the envs that can take an action, as rows, by ascending id; none when all are DONE."""
        self._handed_out = ids = self._scheduler.await_ready()
        if not ids:
            space = self.observation_space
            return _stacked([space.sample()])[:0] if isinstance(space, spaces.Space) else np.zeros(0, np.float32)
        return _stacked(self._scheduler.last_observations(ids))

    def step(self, actions: Any) -> list[Any]:  # type: ignore[override]
        """Takes one action per row of the last ``ready_obs``, or of its first rows; returns one tree per action.

        The trees have ``obs``, ``reward``, ``done``, ``info`` and ``env_id``. ``info``, and fields that an
        env's timesteps have beyond these, are kept as far as they can become arrays of numbers.
        """
        self._scheduler.require_launched()
        ids, self._handed_out = self._handed_out, None
        if ids is None:
            ids = self.ready_obs_id
        rows = _action_rows(actions)
        if len(rows) > len(ids):
            self._handed_out = ids
            raise ActionError(f"step: expected at most {len(ids)} actions, for the envs {ids}, got {len(rows)}")
        timesteps = super().step(dict(zip(ids, rows, strict=False)))
        return [_timestep_tree(one, timesteps[one]) for one in ids[: len(rows)]]


class DingBaseEnvManagerV2(DingManagerV2):
    """``stepmill_base_v2``: ``BaseEnvManager`` for DI-engine's middlewares."""


class DingSubprocessEnvManagerV2(DingManagerV2, SyncSubprocessEnvManager):
    """``stepmill_subprocess_v2``: ``SyncSubprocessEnvManager`` for DI-engine's middlewares."""


# ---- trees of arrays -----------------------------------------------------------------------------

# A tree is built from its storage, with leaves that are arrays already: `treetensor`'s own constructor maps a function
# over the leaves, and takes fifty times as long.


def _timestep_tree(env_id: int, timestep: BaseEnvTimestep) -> Any:
    """A timestep as a tree, which also has the id of its env."""
    info = _as_dicts(tuple(timestep.info)) if isinstance(timestep.info, list | tuple) else timestep.info
    abnormal = any_abnormal(timestep.info)
    return _tree(
        {
            **_numbers_of(more_fields(timestep)),
            "obs": _as_dicts(timestep.obs),
            "reward": timestep.reward,
            "done": np.array(timestep.done and not abnormal),
            "info": _numbers_of(info) if info else {},
            "env_id": np.array(env_id),
        }
    )


def _stacked(observations: Sequence[Any]) -> Any:
    """Observations of several envs as one, with one row per env: an array, or a tree of arrays."""
    first = _as_dicts(observations[0])
    if not isinstance(first, dict):
        return np.array(observations)
    return _tree(_stack([_as_dicts(one) for one in observations]))


def _stack(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {key: _stack([one[key] for one in parts]) for key in parts[0]}
    return np.array(parts)


def _tree(content: dict[str, Any]) -> Any:
    return tnp.ndarray(create_storage(content))


def _as_dicts(value: Any) -> Any:
    """Tuples as dicts, since a tree holds only dicts and arrays."""
    if isinstance(value, dict):
        return {key: _as_dicts(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return {f"_{i}": _as_dicts(child) for i, child in enumerate(value)}
    return value


# ---- actions -------------------------------------------------------------------------------------


def _action_rows(actions: Any) -> list[Any]:
    """One action per env, from a list, an array with one row per env, or a tree of such arrays."""
    if isinstance(actions, TreeValue):
        return _rows_of(actions.json())
    try:
        rows = list(actions)
    except TypeError:
        raise ActionError(
            f"step: expected a list of actions, or an array with one row per env, got {actions!r}"
        ) from None
    return [one.json() if isinstance(one, TreeValue) else one for one in rows]


def _rows_of(actions: dict[str, Any]) -> list[Any]:
    columns = {key: _rows_of(value) if isinstance(value, dict) else list(value) for key, value in actions.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# ---- info ----------------------------------------------------------------------------------------


def _numbers_of(info: dict[Any, Any]) -> dict[str, Any]:
    """The parts of an info that can be tensors, under names that can be attributes."""
    out = {}
    for key, value in info.items():
        found = _numbers_of(value) if isinstance(value, dict) else _numbers(value)
        if found is not None:
            out[_as_name(str(key))] = found
    return out


def _as_name(key: str) -> str:
    """DI-engine's name for a key: ``TimeLimit.truncated`` is ``TimeLimit_truncated``."""
    return ("_" if key[:1].isdigit() else "") + key.replace(".", "_")


def _numbers(value: Any) -> np.ndarray | None:
    """A copy of it as an array that torch takes; None if there is no such array."""
    if value is None or isinstance(value, str | bytes):
        return None
    try:
        array = np.asarray(value)
    except Exception:  # lists of different lengths; tensors on a device; whatever an object's __array__ raises
        return None
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "biufc" or size > (16 if kind == "c" else 8):
        return None
    return np.array(array, array.dtype.newbyteorder("="), order="C")


# ---- their names ---------------------------------------------------------------------------------

# By DI-engine's names. There is no async manager among the v2 ones: DI-engine pairs what they return with what it sent
# by position, so they have to return exactly that.
MANAGERS: dict[str, Any] = {
    "base": DingBaseEnvManager,
    "subprocess": DingSubprocessEnvManager,
    "async_subprocess": DingAsyncSubprocessEnvManager,
    "base_v2": DingBaseEnvManagerV2,
    "subprocess_v2": DingSubprocessEnvManagerV2,
}

for _name, _manager in MANAGERS.items():
    ENV_MANAGER_REGISTRY.register(f"stepmill_{_name}", _manager, force_overwrite=True)


def replace_managers() -> dict[str, Any]:
    """Replaces DI-engine's own managers with ours, for configurations that name DI-engine's.

    Returns the replaced ones by name: ``ENV_MANAGER_REGISTRY.update(...)`` with them puts them back.
    """
    before = {name: ENV_MANAGER_REGISTRY[name] for name in MANAGERS}
    for name, manager in MANAGERS.items():
        ENV_MANAGER_REGISTRY.register(name, manager, force_overwrite=True)
    return before
