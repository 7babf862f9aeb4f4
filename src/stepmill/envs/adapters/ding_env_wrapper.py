"""``DingEnvWrapper``: any Gymnasium env as a ``BaseEnv``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.envs.adapters.native_env import NativeEnv
from stepmill.envs.base_env import MOST_SEED_BITS, SEED_BITS, BaseEnv, EnvHolder
from stepmill.envs.configs import check_mapping, read_cfg
from stepmill.envs.conform import Conversion, action_reader, conform
from stepmill.envs.env_info import BaseEnvInfo
from stepmill.envs.results import reset_parts, rewards_of, step_parts, truth
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ConfigError, UnknownEnvError, UnsupportedError, UsageError
from stepmill.registry.factories import accepted_keys, close_quietly
from stepmill.registry.records import GymnasiumFactory, find, python_twin
from stepmill.values.arguments import true_or_false, whole_number
from stepmill.values.fitting import Fitter

# What `gymnasium.make` puts around every env.
_AUTOMATIC_WRAPPERS = (
    gymnasium.wrappers.PassiveEnvChecker,
    gymnasium.wrappers.OrderEnforcing,
    gymnasium.wrappers.TimeLimit,
)
_DEFAULTS: dict[str, Any] = {
    "env_kwargs": {},
    "env_wrapper": [],
    "max_episode_steps": None,
    "act_scale": False,
    "replay_path": None,
    "seed_bits": SEED_BITS,
}


class DingEnvWrapper(EnvHolder):
    """A Gymnasium env with the types, seeds and episode returns of a ``BaseEnv``.

    Args:
        env: An id or a file, a class or function that makes the env, or an existing env. Unless it exists already, the
            env is built when it is needed, and again after ``close``.
        cfg: All keys are optional, but either ``env`` or ``cfg["env_id"]`` is required.

            - ``env_id``: the id, if ``env`` is not given;
            - ``env_kwargs``: a dict of keyword arguments for building the env;
            - ``env_wrapper``: a list of wrappers: names or classes of ``stepmill.wrappers``, ``(name, kwargs)``,
              ``{"type": name, "kwargs": {...}}``, or functions from env to env; the first is the innermost. Or one of
              DI-engine's names for such a list: ``"default"``, ``"mujoco_default"``, ``"gym_hybrid_default"``,
              ``"atari_default"``, whose rewards are signs unless the cfg says ``is_train: False``;
            - ``max_episode_steps``: a time limit, which replaces the one that an id is registered with;
            - ``act_scale``: actions are in [-1, 1] and are scaled to the bounds of the env's Box;
            - ``replay_path``: a folder for a video of every episode;
            - ``seed_bits``: seeds of episodes are below ``2**seed_bits`` (31), which every simulator accepts; up to 63.
        seed_api: False for an env whose ``reset`` takes no seed.

    ``info["eval_episode_return"]`` is the sum of the rewards, or what an inner wrapper put there
    (``EvalEpisodeReturn`` inside one that changes rewards).
    """

    _state_names: tuple[str, ...] = (*EnvHolder._state_names, "_return")

    def __init__(self, env: Any = None, cfg: Any = None, *, seed_api: bool = True) -> None:
        super().__init__({} if cfg is None else cfg)
        given = read_cfg("DingEnvWrapper", self._cfg, () if env is not None else ("env_id",), _DEFAULTS)
        self._recipe: str | Callable[..., Any] | None = None
        source = given["env_id"] if env is None else env
        if isinstance(source, str | type) or (callable(source) and not hasattr(source, "step")):
            self._recipe = source
        elif isinstance(source, gymnasium.Env):
            self._env = source
        else:
            raise ConfigError(
                f"DingEnvWrapper: env: expected an id, a gymnasium.Env, its class or a function, got {source!r}"
            )
        check_mapping("DingEnvWrapper: env_kwargs", given["env_kwargs"])
        if given["max_episode_steps"] is not None:
            whole_number("DingEnvWrapper: max_episode_steps", given["max_episode_steps"], 1)
        true_or_false("DingEnvWrapper: act_scale", given["act_scale"])
        self._seed_bits = whole_number("DingEnvWrapper: seed_bits", given["seed_bits"], 1, MOST_SEED_BITS)
        self._given = given
        self._seed_api = seed_api
        self._must_draw = False
        self._return = 0.0
        if given["replay_path"] is not None:
            self.enable_save_replay(given["replay_path"])

    # ---- building ----------------------------------------------------------------------------

    def _open(self) -> Any:
        """The env, built and wrapped if it is not yet."""
        if self._is_open:
            return self._env
        env, limit = self._env, self._given["max_episode_steps"]
        if self._recipe is not None:
            env, limit = self._make(self._recipe, limit)
        elif env is None:
            raise UsageError(
                f"{self!r} is closed: give DingEnvWrapper an id or a function, so that it can build the env again"
            )
        try:
            whole = self._wrapped(env, limit)
            self._observation = conform(whole.observation_space, repr(self))
            self._observation_space = self._observation.space
            self._action_space = conform(whole.action_space, repr(self)).space
            self._read_action = action_reader(whole.action_space, repr(self))
        except BaseException:
            if self._recipe is not None:  # an existing env stays open
                close_quietly(env)
            raise
        self._env, self._is_open = whole, True
        return whole

    _observation: Conversion
    _read_action: Fitter

    def _make(self, recipe: str | Callable[..., Any], limit: int | None) -> tuple[Any, int | None]:
        """A new env, and the time limit that it does not enforce itself."""
        factory: Any = recipe
        kwargs = self._given["env_kwargs"]
        if isinstance(recipe, str):
            try:
                record, factory = python_twin(find(recipe), "")
            except (UnknownEnvError, UnsupportedError):  # a file, or native only; or there is no such env
                return NativeEnv(recipe, max_episode_steps=limit, **kwargs), None
            kwargs = {**record.config, **kwargs}
            if not isinstance(factory, GymnasiumFactory):
                limit = limit or record.max_episode_steps
            elif limit is not None:  # `gymnasium.make` replaces its own limit with it
                kwargs, limit = {**kwargs, "max_episode_steps": limit}, None
        if self._replay_path is not None:
            accepted = accepted_keys(factory)
            if accepted is None or "render_mode" in accepted:  # else it always draws, or never
                kwargs = {"render_mode": "rgb_array", **kwargs}
        env = factory(**kwargs)
        if not isinstance(env, gymnasium.Env):
            close_quietly(env)
            already = ", which is a BaseEnv already" if isinstance(env, BaseEnv) else ""
            raise ConfigError(f"{self!r}: expected a gymnasium.Env, got {env!r}{already}")
        return env, limit

    def _wrapped(self, env: Any, limit: int | None) -> Any:
        given = self._given
        self._built = env
        if limit is not None:
            env = gymnasium.wrappers.TimeLimit(env, limit)
        if given["act_scale"]:
            env = _scaled(env)
        self._bare = env
        if given["env_wrapper"]:
            from stepmill.wrappers.catalogue import wrap

            env = wrap(env, self._wrappers(env))
        return env

    def _wrappers(self, env: Any) -> Any:
        """The wrappers of the cfg; if it has the name of a list, that list."""
        from stepmill.wrappers.atari import DEFAULT_WRAPPERS, default_wrappers

        asked = self._given["env_wrapper"]
        if not isinstance(asked, str) or asked not in DEFAULT_WRAPPERS:
            return asked
        spec_id = None if env.spec is None else env.spec.id
        return default_wrappers(asked, spec_id, bool(self._given.get("is_train", True)))

    _built: Any  # the env as its id, its function or the caller gave it
    _bare: Any  # with a time limit and scaled actions, inside the wrappers of the cfg

    # ---- an episode --------------------------------------------------------------------------

    def reset(self, **kwargs: Any) -> Any:
        if self._must_draw:
            self._must_draw = False
            self.close()
        env = self._open()
        seed = self._next_seed() if self._begins_anew(env) else None
        result = env.reset(seed=seed, options=kwargs or None) if self._seed_api else env.reset(**kwargs)
        observation, self.reset_info = reset_parts(self, result)
        self._return, self._has_begun = 0.0, True
        return self._observation.convert(observation)

    @staticmethod
    def _begins_anew(env: Any) -> bool:
        """Whether a reset starts a new game. With ``EpisodicLifeEnv`` it may go on with the next life: no seed then."""
        return not env.has_wrapper_attr("was_real_done") or env.get_wrapper_attr("was_real_done")

    def step(self, action: Any) -> BaseEnvTimestep:
        if not self._has_begun:
            raise UsageError(f"{self!r}: step before reset")
        result = self._env.step(self._read_action(action))
        observation, reward, terminated, truncated, info = step_parts(self, result)
        rewards = rewards_of(self, reward)
        self._return += float(rewards.sum())
        has_ended = truth(self, "terminated", terminated)
        done = truth(self, "truncated", truncated) or has_ended
        if done:
            score = float(info.get("eval_episode_return", info.get("final_eval_reward", self._return)))
            info = {
                **info,
                "TimeLimit.truncated": not has_ended,
                "eval_episode_return": score,
                "final_eval_reward": score,
            }
        return BaseEnvTimestep(self._observation.convert(observation), rewards.astype(np.float32), done, info)

    # ---- what it is --------------------------------------------------------------------------

    @property
    def reward_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        """The env's own if it has one, as envs with several objectives do."""
        return getattr(self._open().unwrapped, "reward_space", BaseEnv.reward_space)

    def info(self) -> BaseEnvInfo:
        info = super().info()
        of_cfg = _wrappers_of(self._open(), until=self._bare)
        inside = [one for one in _wrappers_of(self._built) if not isinstance(one, _AUTOMATIC_WRAPPERS)]
        info.use_wrappers = "\n".join(type(one).__name__ for one in reversed([*of_cfg, *inside])) or None
        return info

    def __repr__(self) -> str:
        """Names the env inside."""
        name = self._recipe if isinstance(self._recipe, str) else getattr(self._recipe, "__name__", None)
        return f"DingEnvWrapper({name or self._env})"

    # ---- pictures ----------------------------------------------------------------------------

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """See ``BaseEnv``. An existing env must have been made with ``render_mode="rgb_array"``."""
        is_blind = self._env is not None and self._env.render_mode != "rgb_array"
        if is_blind and self._recipe is None:
            raise UnsupportedError(
                f"{self!r}: videos need an env with render_mode='rgb_array', got one with {self._env.render_mode!r}. "
                "Make it with that mode, or give DingEnvWrapper an id"
            )
        super().enable_save_replay(replay_path)
        self._must_draw = is_blind  # the next reset builds one that draws


def _wrappers_of(env: Any, until: Any = None) -> list[Any]:
    """The wrappers around an env, the outermost first, as far as ``until``."""
    found = []
    while isinstance(env, gymnasium.Wrapper) and env is not until:
        found.append(env)
        env = env.env
    return found


def _scaled(env: Any) -> Any:
    from gymnasium.wrappers import RescaleAction

    space = env.action_space
    if not isinstance(space, spaces.Box) or not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ConfigError(f"DingEnvWrapper: act_scale: expected a bounded Box as action space, got {space}")
    if space.dtype.kind != "f":  # there are only three whole numbers in [-1, 1]
        raise ConfigError(f"DingEnvWrapper: act_scale: expected a Box of floats as action space, got {space}")
    low, high = (np.full(space.shape, bound, space.dtype) for bound in (-1.0, 1.0))
    return RescaleAction(env, low, high)
