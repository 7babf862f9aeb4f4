"""What runs where the envs of a manager run: it builds them, instructs them and asks them questions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium import spaces

from stepmill.envs.adapters import as_base_env, as_pool_env, is_pettingzoo
from stepmill.envs.adapters.as_gymnasium import AsGymnasium, gymnasium_of
from stepmill.envs.adapters.ding import DingAsBaseEnv, DingAsItIs, is_ding_env
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.env_info import BaseEnvInfo, declared_space, element_info_of, info_of
from stepmill.errors import UnsupportedError
from stepmill.managers.config import EnvRecipe
from stepmill.registry.attributes import get_attribute, has_attribute, set_attribute
from stepmill.registry.description import has_coroutines
from stepmill.registry.env_state import HasLayerState
from stepmill.values.spaces import AnyValue


@dataclass(frozen=True)
class ManagedEnvFactory:
    """Makes an env for the pool that sends everything its timesteps have: ``RowReader`` puts them together again."""

    recipe: EnvRecipe
    pickles_observations: bool  # whether they fit their space or not

    def __call__(self, env_id: int) -> Any:
        env = self.recipe()
        if is_ding_env(env) or is_pettingzoo(env):  # here all agents have rows in every step, in a timestep of the team
            env = as_base_env(env)
        pool_env = self._as_pool_env(env, env_id)
        if isinstance(pool_env, AsGymnasium):
            pool_env.keeps_timesteps, pool_env.passes_seeds = True, False
            return pool_env
        return _PickledObservations(pool_env) if self.pickles_observations and _can_be_stepped(pool_env) else pool_env

    def _as_pool_env(self, env: Any, env_id: int) -> Any:
        if isinstance(env, BaseEnv):
            env.env_id = env_id
        if isinstance(env, DingAsBaseEnv):
            return DingAsItIs(env, self.pickles_observations)
        if isinstance(env, BaseEnv) and self.pickles_observations:  # rows of several agents stay together
            return gymnasium_of(env, by_value=True)
        return env if isinstance(env, gymnasium.Env) else as_pool_env(env, env_id)


def _can_be_stepped(env: Any) -> bool:
    """Whether it looks like an env. If it does not, the pool says what is wrong with it."""
    return all(hasattr(env, name) for name in _ENV_ATTRIBUTES) and not hasattr(env, "agent_iter")


_ENV_ATTRIBUTES = ("reset", "step", "observation_space", "action_space")


class _PickledObservations(HasLayerState, gymnasium.Env[Any, Any]):
    """Declares that observations may be anything, so that they are pickled.

    Not a ``gymnasium.Wrapper``, which takes only Gymnasium's own envs: pools step whatever has its methods.
    """

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space = AnyValue()
        self.action_space = env.action_space
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self.has_coroutines = has_coroutines(env)

    def _state_inside(self) -> Any:
        return self.env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options=options)  # type: ignore[no-any-return]

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return self.env.step(action)  # type: ignore[no-any-return]

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> Any:
        return self.env.close() if hasattr(self.env, "close") else None

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


# ---- questions to an env -------------------------------------------------------------------------


@dataclass(frozen=True)
class EnvSpaces:
    """The spaces of an env, as its author declares them.

    ``takes_anything``: the env also takes and shows what they do not describe.
    """

    observation: spaces.Space[Any] | None  # None: observations are pickled, and the env does not say what they are
    action: spaces.Space[Any]
    reward: spaces.Space[Any]
    takes_anything: bool
    has_random_action: bool


def _authors_env(env: Any) -> Any:
    """The env that the author wrote, without what we put around it."""
    if isinstance(env, _PickledObservations):
        env = env.env
    return getattr(env, "base_env", env)


def spaces_of(env: Any) -> EnvSpaces:
    """The spaces that its author declares."""
    own = _authors_env(env)
    if is_ding_env(own):  # it is `env_ref`, which no adapter is around
        own = as_base_env(own)
    reward = getattr(own, "reward_space", None)
    return EnvSpaces(
        declared_space(own, "observation_space"),
        own.action_space,
        BaseEnv.reward_space if reward is None else reward,
        takes_anything=isinstance(env, DingAsItIs),
        has_random_action=hasattr(own, "random_action"),
    )


def random_action_of(env: Any) -> Any:
    """What the env's own ``random_action`` returns."""
    return _authors_env(env).random_action()


def env_info_of(env: Any) -> BaseEnvInfo:
    """What an env says about itself, or what its spaces say."""
    own = _authors_env(env)
    if hasattr(own, "info") and callable(own.info):
        return info_of(own)  # type: ignore[no-any-return]
    found = spaces_of(env)
    return BaseEnvInfo(
        1, element_info_of(found.observation), element_info_of(found.action), element_info_of(found.reward), None
    )


def check_can_record(env: Any) -> None:
    """Raises if an env cannot write videos."""
    if not hasattr(_authors_env(env), "enable_save_replay"):
        raise UnsupportedError(
            f"enable_save_replay: expected a BaseEnv, got {_authors_env(env)}: wrap it in stepmill.envs.DingEnvWrapper"
        )


@dataclass(frozen=True)
class EnvInstructions:
    """What an env's configuration does not say. Called with an env, it tells the env."""

    is_seeded: bool = False  # whether the caller has seeded it
    dynamic_seed: bool | None = None
    replay_path: str | None = None

    def __call__(self, env: Any) -> None:
        if isinstance(env, AsGymnasium):
            env.passes_seeds = self.is_seeded
            if self.dynamic_seed is not None:
                env.dynamic_seed = self.dynamic_seed
        if self.replay_path is None:
            return
        check_can_record(env)
        if isinstance(env, AsGymnasium):
            env.record_to = self.replay_path
        else:
            _authors_env(env).enable_save_replay(self.replay_path)


@dataclass(frozen=True)
class ReadAttribute:
    """Called with an env, it reads an attribute that is not a method."""

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
