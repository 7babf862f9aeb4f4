"""``DingEnvWrapper``: any Gymnasium env as a ``BaseEnv``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import read_cfg
from stepmill.envs.conform import ActionReader, Conformed, action_reader, conform
from stepmill.envs.timestep import BaseEnvInfo, BaseEnvTimestep
from stepmill.errors import ConfigError, EnvError, UnknownEnvError, UnsupportedError, UsageError
from stepmill.registry import find
from stepmill.wrappers.base import ShapeTeller

__all__ = ["DingEnvWrapper"]

_DEFAULTS: dict[str, Any] = {
    "env_kwargs": {},
    "env_wrapper": [],
    "max_episode_steps": None,
    "act_scale": False,
    "replay_path": None,
}


class DingEnvWrapper(BaseEnv):
    """A Gymnasium env with the types, seeds and episode returns of a ``BaseEnv``.

    Args:
        env: An id, a class or function that makes the env, or an env. But for the last, the env is built when it is
            needed, and again after ``close``.
        cfg: All keys may be left out, but one of ``env`` and ``cfg["env_id"]``.

            - ``env_id``: the id, where ``env`` is not given;
            - ``env_kwargs``: a dict, passed on where the env is built;
            - ``env_wrapper``: a list of wrappers: names or classes of ``stepmill.wrappers``, ``(name, kwargs)``,
              ``{"type": name, "kwargs": {...}}``, or functions from env to env; the first is the innermost;
            - ``max_episode_steps``: a time limit;
            - ``act_scale``: actions are in [-1, 1], and spread to the bounds of the env's Box;
            - ``replay_path``: a folder for a video of every episode.
        seed_api: False for an env whose ``reset`` takes no seed.

    ``info["eval_episode_return"]`` is the sum of the rewards, or what a wrapper inside wrote there
    (``EvalEpisodeReturn`` below one that changes rewards).
    """

    def __init__(self, env: Any = None, cfg: Any = None, *, seed_api: bool = True) -> None:
        super().__init__({} if cfg is None else cfg)
        given = read_cfg("DingEnvWrapper", self._cfg, () if env is not None else ("env_id",), _DEFAULTS)
        self._recipe: str | Callable[..., Any] | None = None
        self._env: Any = None
        source = given["env_id"] if env is None else env
        if isinstance(source, str | type) or (callable(source) and not hasattr(source, "step")):
            self._recipe = source
        elif all(hasattr(source, name) for name in ("reset", "step", "observation_space", "action_space")):
            self._env = source
        else:
            raise ConfigError(
                f"DingEnvWrapper: env: expected an id, a gymnasium.Env, its class or a function, got {source!r}"
            )
        self._given = given
        self._seed_api = seed_api
        self._is_open = False
        self._return = 0.0
        # What the last reset said beside its observation.
        self.reset_info: dict[str, Any] = {}
        if given["replay_path"] is not None:
            self.enable_save_replay(given["replay_path"])

    # ---- building ----------------------------------------------------------------------------

    def _open(self) -> Any:
        """The env, built and wrapped where it is not yet."""
        if self._is_open:
            return self._env
        if self._recipe is not None:
            self._env = self._make(self._recipe)
        elif self._env is None:
            raise UsageError(
                f"{self!r} is closed: give DingEnvWrapper an id or a function, and it can build the env again"
            )
        given = self._given
        if given["max_episode_steps"] is not None:
            self._env = gymnasium.wrappers.TimeLimit(self._env, given["max_episode_steps"])
        if given["act_scale"]:
            self._env = _scaled(self._env)
        if given["env_wrapper"]:
            from stepmill.wrappers.catalogue import wrap

            self._env = wrap(self._env, given["env_wrapper"])
        self._observation = conform(self._env.observation_space)
        self._action_space = conform(self._env.action_space).space
        self._read_action = action_reader(self._env.action_space, repr(self))
        self._is_open = True
        return self._env

    _observation: Conformed
    _action_space: spaces.Space[Any]
    _read_action: ActionReader

    def _make(self, recipe: str | Callable[..., Any]) -> Any:
        kwargs = dict(self._given["env_kwargs"])
        if self._replay_path is not None:
            kwargs.setdefault("render_mode", "rgb_array")
        env = recipe(**kwargs) if callable(recipe) else self._make_by_id(recipe, kwargs)
        if isinstance(env, BaseEnv):
            env.close()
            raise ConfigError(f"{self!r}: expected a gymnasium.Env, got {env!r}, which is a BaseEnv already")
        return env

    @staticmethod
    def _make_by_id(id: str, kwargs: dict[str, Any]) -> Any:
        record = find(id)
        if record.factory is None:  # native: as a single env, Gymnasium's own of that name
            try:
                record = find(f"gymnasium:{id}")
            except UnknownEnvError:
                raise UnsupportedError(f"DingEnvWrapper: {id} is native only, there is no single env of it") from None
        assert record.factory is not None
        return record.factory(**{**record.config, **kwargs})

    # ---- an episode --------------------------------------------------------------------------

    def reset(self, **kwargs: Any) -> Any:
        env = self._open()
        seed = self._next_seed() if self._begins_anew(env) else None
        result = env.reset(seed=seed, options=kwargs or None) if self._seed_api else env.reset(**kwargs)
        try:
            observation, self.reset_info = result
        except (TypeError, ValueError):
            raise EnvError(f"{self!r}: reset: expected (observation, info), got {_kind(result)}") from None
        self._return = 0.0
        return self._observation.convert(observation)

    @staticmethod
    def _begins_anew(env: Any) -> bool:
        """Whether a reset begins a game, not the next life of one (``EpisodicLifeEnv``), which a seed would cut."""
        return not env.has_wrapper_attr("was_real_done") or env.get_wrapper_attr("was_real_done")

    def step(self, action: Any) -> BaseEnvTimestep:
        if not self._is_open:
            raise UsageError(f"{self!r}: step before reset")
        result = self._env.step(self._read_action(action))
        try:
            observation, reward, terminated, truncated, info = result
        except (TypeError, ValueError):
            raise EnvError(
                f"{self!r}: step: expected (observation, reward, terminated, truncated, info), got {_kind(result)}"
            ) from None
        rewards = np.array(reward, np.float32).reshape(-1)
        self._return += float(reward) if rewards.size == 1 else float(rewards.sum())
        done = bool(terminated or truncated)
        if done:
            score = float(info.get("eval_episode_return", self._return))
            info = {
                **info,
                "TimeLimit.truncated": not terminated,
                "eval_episode_return": score,
                "final_eval_reward": score,
            }
        return BaseEnvTimestep(self._observation.convert(observation), rewards, done, info)

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None
        self._is_open = False

    # ---- what it is --------------------------------------------------------------------------

    @property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._observation.space

    @property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._action_space

    @property
    def reward_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        """The env's own where it has one, as envs with several objectives do."""
        return getattr(self._open().unwrapped, "reward_space", BaseEnv.reward_space)

    @property
    def metadata(self) -> Any:  # type: ignore[override]
        return self._open().metadata

    def info(self) -> BaseEnvInfo:
        info = super().info()
        names = []
        env = self._open()
        while isinstance(env, gymnasium.Wrapper):
            if isinstance(env, ShapeTeller):  # the others change no shapes, and update_shape does not know them
                names.append(type(env).__name__)
            env = env.env
        info.use_wrappers = "\n".join(reversed(names)) or None
        return info

    def __repr__(self) -> str:
        """The env that is inside."""
        name = self._recipe if isinstance(self._recipe, str) else getattr(self._recipe, "__name__", None)
        return f"DingEnvWrapper({name or self._env})"

    # ---- pictures ----------------------------------------------------------------------------

    def render(self) -> Any:
        return self._open().render()

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """As ``BaseEnv`` has it. An env that exists already must have been made with ``render_mode="rgb_array"``."""
        mode = getattr(self._env, "render_mode", None)
        if self._env is not None and mode != "rgb_array":
            if self._recipe is None:
                raise UnsupportedError(
                    f"{self!r}: videos need an env with render_mode='rgb_array', got one with {mode!r}. Make it so, or "
                    "give DingEnvWrapper an id, and it does"
                )
            self.close()  # the next reset builds one that draws
        super().enable_save_replay(replay_path)


def _scaled(env: Any) -> Any:
    from gymnasium.wrappers import RescaleAction

    space = env.action_space
    if not isinstance(space, spaces.Box) or not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ConfigError(f"DingEnvWrapper: act_scale: expected a bounded Box as action space, got {space}")
    return RescaleAction(env, np.float32(-1.0), np.float32(1.0))


def _kind(value: Any) -> str:
    return (
        f"a {type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else f"a {type(value).__name__}"
    )
