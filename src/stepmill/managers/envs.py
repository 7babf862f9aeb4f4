"""The envs of a manager, as its pool steps them, and what is asked of them where they run."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from gymnasium import spaces

from stepmill.envs.adapters import as_gymnasium, as_pool_env
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.timestep import BaseEnvInfo, element_info_of
from stepmill.errors import UnsupportedError
from stepmill.managers.config import EnvRecipe, ManagerSettings
from stepmill.managers.rows import RowsAsTheyCome
from stepmill.pool.at_exit import close_at_exit
from stepmill.pool.settings import check_settings
from stepmill.pool.source import PythonEnv, PythonSource

__all__ = ["EnvSpaces", "Instructions", "check_recorder", "env_info_of", "open_pool", "read_value", "spaces_of"]


def open_pool(recipes: Sequence[EnvRecipe], settings: ManagerSettings, backend: str) -> Any:
    """A pool whose results come as they are ready, and that resets nothing by itself."""
    by_value = not settings.shared_memory
    source = PythonSource(
        _name_of(recipes[0].env_fn),
        [PythonEnv(_ByValue(one) if by_value else one, {}, None) for one in recipes],
        None,
        None,
    )
    pool_settings = check_settings(
        num_envs=len(recipes),
        batch_size=None,
        num_threads=None,
        num_workers=settings.num_workers,
        seed=[secrets.randbits(62) for _ in recipes],  # until somebody says `seed`
        backend=backend,
        autoreset="disabled",
        max_episode_steps=None,
        max_num_players=1,
        thread_affinity_offset=-1,
        step_timeout=settings.step_timeout,
        reset_timeout=settings.reset_timeout,
        start_timeout=settings.start_timeout,
        on_error="raise",
        max_restarts=3,
        action_bounds="pass",
        output="numpy",
        reward_dtype="float32",
    )
    pool_settings = replace(pool_settings, as_ready=True)
    pool: Any
    if backend == "inline":
        from stepmill.pool.inline import InlinePool

        pool = InlinePool(source, pool_settings, finisher=RowsAsTheyCome)
    else:
        from stepmill.pool.process.pool import ProcessPool

        pool = ProcessPool(source, pool_settings, finisher=RowsAsTheyCome)
    close_at_exit(pool)
    return pool


def _name_of(env_fn: Any) -> str:
    return getattr(env_fn, "__name__", type(env_fn).__name__)


# ---- observations by value -----------------------------------------------------------------------


class _AnyObservation(spaces.Space[Any]):
    """A space that no array holds: its values travel pickled, whatever they are."""

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _AnyObservation)


class _ObservationsByValue(gymnasium.Wrapper[Any, Any, Any, Any]):
    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.observation_space = _AnyObservation()


@dataclass(frozen=True)
class _ByValue:
    """Makes an env whose observations are not held to its space."""

    recipe: EnvRecipe

    def __call__(self, env_id: int) -> Any:
        env = self.recipe()
        pool_env = as_pool_env(env, env_id) if not isinstance(env, gymnasium.Env) else env
        if getattr(pool_env, "num_players", 1) > 1:  # rows of one env stay together
            pool_env = as_gymnasium(env)
        return _ObservationsByValue(pool_env)


# ---- what is asked of an env, where it runs ------------------------------------------------------


@dataclass(frozen=True)
class EnvSpaces:
    """The spaces of an env, as its author has them."""

    observation: spaces.Space[Any]
    action: spaces.Space[Any]
    reward: spaces.Space[Any]


def _own(env: Any) -> Any:
    """The author's env, inside of what we put around it."""
    if isinstance(env, _ObservationsByValue):
        env = env.env
    return getattr(env, "base_env", env)


def spaces_of(env: Any) -> EnvSpaces:
    """The author's spaces."""
    own = _own(env)
    reward = getattr(own, "reward_space", None)
    return EnvSpaces(own.observation_space, own.action_space, BaseEnv.reward_space if reward is None else reward)


def env_info_of(env: Any) -> BaseEnvInfo:
    """What an env says of itself, or what its spaces do."""
    own = _own(env)
    if hasattr(own, "info") and callable(own.info):
        return own.info()  # type: ignore[no-any-return]
    found = spaces_of(env)
    return BaseEnvInfo(
        1, element_info_of(found.observation), element_info_of(found.action), element_info_of(found.reward), None
    )


def check_recorder(env: Any) -> None:
    """Raises where an env cannot write videos."""
    if not hasattr(_own(env), "enable_save_replay"):
        raise UnsupportedError(
            f"enable_save_replay: expected a BaseEnv, got {_own(env)}: wrap it in stepmill.envs.DingEnvWrapper"
        )


@dataclass(frozen=True)
class Instructions:
    """What an env does not know from its configuration. Called with an env, it tells it."""

    dynamic_seed: bool | None
    replay_path: str | None

    def __call__(self, env: Any) -> None:
        inside = env.env if isinstance(env, _ObservationsByValue) else env
        if self.dynamic_seed is not None and hasattr(inside, "dynamic_seed"):
            inside.dynamic_seed = self.dynamic_seed
        if self.replay_path is None:
            return
        check_recorder(env)
        _own(env).enable_save_replay(self.replay_path)


@dataclass(frozen=True)
class read_value:
    """Reads an attribute that is not a method."""

    name: str

    def __call__(self, env: Any) -> Any:
        has = env.has_wrapper_attr(self.name) if hasattr(env, "has_wrapper_attr") else hasattr(env, self.name)
        if not has:
            raise AttributeError(f"neither the manager nor its envs have {self.name!r}")
        value = env.get_wrapper_attr(self.name) if hasattr(env, "get_wrapper_attr") else getattr(env, self.name)
        if callable(value) and not isinstance(value, spaces.Space):
            raise AttributeError(
                f"{self.name!r} is a method of the envs, and not listed: add it to method_name_list of the manager"
            )
        return value
