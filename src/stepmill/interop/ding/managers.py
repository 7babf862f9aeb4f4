"""Managers for DI-engine's serial pipelines: dicts by env id, in and out."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import gym  # type: ignore[import-not-found]
from easydict import EasyDict  # type: ignore[import-untyped]
from gymnasium import spaces

from stepmill.envs.adapters.ding import build_env
from stepmill.errors import ConfigError
from stepmill.managers import AsyncSubprocessEnvManager, BaseEnvManager, SyncSubprocessEnvManager
from stepmill.managers.config import read_ids

__all__ = ["DingAsyncSubprocessEnvManager", "DingBaseEnvManager", "DingManager", "DingSubprocessEnvManager"]

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
        """For DI-engine's parallel collectors, which read it."""
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
