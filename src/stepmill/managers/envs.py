"""The envs of a manager, as its pool steps them, and what they are asked where they run."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces

from stepmill.envs.adapters import as_base_env, as_pool_env
from stepmill.envs.adapters.any_value import AnyValue
from stepmill.envs.adapters.as_gymnasium import AsGymnasium, TeamAsGymnasium
from stepmill.envs.adapters.ding import DingAsBaseEnv, is_ding_env
from stepmill.envs.adapters.ding_as_it_is import DingAsItIs
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.timestep import BaseEnvInfo, element_info_of
from stepmill.errors import UnsupportedError
from stepmill.managers.config import EnvRecipe, ManagerSettings
from stepmill.managers.rows import RowsAsTheyCome
from stepmill.pool.at_exit import close_at_exit
from stepmill.pool.attributes import get_attribute, has_attribute, set_attribute
from stepmill.pool.settings import check_settings, default_workers
from stepmill.pool.source import PythonEnv, PythonSource

__all__ = [
    "EnvSpaces",
    "Instructions",
    "check_recorder",
    "env_info_of",
    "open_pool",
    "random_action_of",
    "read_value",
    "spaces_of",
]


def open_pool(recipes: Sequence[EnvRecipe], settings: ManagerSettings, backend: str) -> Any:
    """A pool whose results come as they are ready, and that resets nothing by itself."""
    source = PythonSource(
        _name_of(recipes[0].env_fn),
        [PythonEnv(_InManager(one, not settings.shared_memory), {}, None) for one in recipes],
        None,
        None,
    )
    workers = settings.num_workers
    if workers is None and backend == "process":
        workers = default_workers(len(recipes), waits_for_all=settings.wait_num >= len(recipes))
    pool_settings = check_settings(
        num_envs=len(recipes),
        num_workers=workers,
        seed=[secrets.randbits(62) for _ in recipes],  # until somebody calls `seed`
        backend=backend,
        autoreset="disabled",
        step_timeout=settings.step_timeout,
        reset_timeout=settings.reset_timeout,
        start_timeout=settings.start_timeout,
        reward_dtype="float32",
        as_ready=True,
    )
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


# ---- envs as a manager has them in its pool -------------------------------------------------------


@dataclass(frozen=True)
class _InManager:
    """Makes an env that loses nothing in the pool: the manager puts together what the pool has in several places."""

    recipe: EnvRecipe
    by_value: bool  # observations are sent pickled, whether they fit their space or not

    def __call__(self, env_id: int) -> Any:
        env = self.recipe()
        if is_ding_env(env):
            env = as_base_env(env)
        if isinstance(env, DingAsBaseEnv):
            env.env_id = env_id
            return DingAsItIs(env, self.by_value)
        pool_env = env if isinstance(env, gymnasium.Env) else as_pool_env(env, env_id)
        if isinstance(pool_env, TeamAsGymnasium) and self.by_value:  # rows of one env stay together
            pool_env = AsGymnasium(pool_env.base_env)
        if isinstance(pool_env, AsGymnasium):
            pool_env.keeps_timesteps = True
        return _ObservationsByValue(pool_env) if self.by_value and _can_be_stepped(pool_env) else pool_env


def _can_be_stepped(env: Any) -> bool:
    """Whether it looks like an env. If not, the pool says what is wrong with it."""
    return all(hasattr(env, name) for name in _OF_EVERY_ENV) and not hasattr(env, "agent_iter")


_OF_EVERY_ENV = ("reset", "step", "observation_space", "action_space")


class _ObservationsByValue(gymnasium.Env[Any, Any]):
    """Not a ``gymnasium.Wrapper``, which only takes Gymnasium's own envs: pools step whatever has its methods."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = AnyValue()
        self.action_space = env.action_space
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options=options)  # type: ignore[no-any-return]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self.env.step(action)  # type: ignore[no-any-return]

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        if hasattr(self.env, "close"):
            self.env.close()

    def __repr__(self) -> str:
        """The env inside."""
        return repr(self.env)

    def has_wrapper_attr(self, name: str) -> bool:
        return has_attribute(self.env, name)

    def get_wrapper_attr(self, name: str) -> Any:
        return get_attribute(self.env, name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        if not force and not has_attribute(self.env, name):
            return False
        set_attribute(self.env, name, value)
        return True


# ---- what is asked of an env, where it runs ------------------------------------------------------


@dataclass(frozen=True)
class EnvSpaces:
    """The spaces of an env, as its author has them.

    ``are_open``: it also takes and shows what they do not describe. ``draws_actions``: it has a ``random_action``.
    """

    observation: spaces.Space[Any]
    action: spaces.Space[Any]
    reward: spaces.Space[Any]
    are_open: bool
    draws_actions: bool


def _own(env: Any) -> Any:
    """The author's env, without what we put around it."""
    if isinstance(env, _ObservationsByValue):
        env = env.env
    return getattr(env, "base_env", env)


def spaces_of(env: Any) -> EnvSpaces:
    """The author's spaces."""
    own = _own(env)
    if is_ding_env(own):  # `env_ref`, which is not adapted
        own = as_base_env(own)
    reward = getattr(own, "reward_space", None)
    return EnvSpaces(
        own.observation_space,
        own.action_space,
        BaseEnv.reward_space if reward is None else reward,
        are_open=isinstance(env, DingAsItIs),
        draws_actions=hasattr(own, "random_action"),
    )


def random_action_of(env: Any) -> Any:
    """An action that the env's own ``random_action`` gives."""
    return _own(env).random_action()


def env_info_of(env: Any) -> BaseEnvInfo:
    """What an env says about itself, or what its spaces say."""
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
    """What an env does not know from its configuration. Called with an env, it tells the env."""

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
        if not has_attribute(env, self.name):
            raise AttributeError(f"neither the manager nor its envs have an attribute {self.name!r}")
        value = get_attribute(env, self.name)
        if callable(value) and not isinstance(value, spaces.Space):
            raise AttributeError(
                f"{self.name!r} is a method of the envs that is not listed: add it to method_name_list of the manager"
            )
        return value
