"""A ``BaseEnv`` as a Gymnasium env: this is what pools step."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.envs.base_env import BaseEnv, seed_env
from stepmill.envs.env_info import declared_space
from stepmill.envs.results import truth
from stepmill.envs.timestep import LEFTOVER, BaseEnvTimestep, Leftover, more_fields
from stepmill.errors import EnvError, UnsupportedError
from stepmill.registry.description import defines_coroutines
from stepmill.registry.env_state import HasLayerState
from stepmill.values.spaces import AnyValue
from stepmill.values.trees import leaves, map_tree, space_from, tree_of


class InnerAttributes(gymnasium.Env[Any, Any]):
    """An adapter whose ``get_wrapper_attr`` also finds the attributes of ``_inner``, the env inside."""

    _inner: Any

    def _owner(self, name: str) -> Any:
        """The object that has an attribute: this one if it is its own, else the env."""
        return self if name in vars(self) or not hasattr(self._inner, name) else self._inner

    def has_wrapper_attr(self, name: str) -> bool:
        return hasattr(self._owner(name), name)

    def get_wrapper_attr(self, name: str) -> Any:
        return getattr(self._owner(name), name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        known = self.has_wrapper_attr(name)
        if not known and not force:
            return False
        setattr(self._owner(name) if known else self._inner, name, value)
        return True


_FLOAT32 = np.dtype(np.float32)
_SCALAR = np.generic  # what pools pass for a Discrete space; checked first because `isinstance` with several is slow


class AsGymnasium(HasLayerState, InnerAttributes):
    """A ``BaseEnv`` behind ``reset(seed, options)`` and ``step`` with five results.

    - ``reset(seed=...)`` calls ``seed(seed, dynamic_seed)``, with the attribute ``dynamic_seed`` of this object, which
      is initially that of the env, of its cfg, or True; an older ``seed(seed)`` is called with one argument.
    - ``options`` become keyword arguments of the env's ``reset``.
    - ``done`` means truncated if ``info["TimeLimit.truncated"]`` is true, else terminated.
    - If there are several rewards (many agents or objectives), the reward is their sum and ``info["rewards"]`` has all.
    - Fields of a timestep beyond the four become keys of the info, unless the info already has such a key.
    - Attributes that Gymnasium does not know are read from the env: ``get_wrapper_attr`` finds them.

    Args:
        base_env: The env.
        by_value: Whether observations need not match a space: they are pickled, and the env needs no such space.
    """

    _state_names = ("passes_seeds", "dynamic_seed")  # managers set them

    # True in managers, which put fields beyond the four back into the timestep.
    keeps_timesteps = False
    # False in managers that nobody has seeded: the seeds of the pool stay away from an env that decides for itself.
    passes_seeds = True
    # Where the env is to record its episodes from the next reset on: it is told so after its seed.
    record_to: str | None = None

    def __init__(self, base_env: BaseEnv, by_value: bool = False) -> None:
        self._inner = self.base_env = base_env
        cfg = getattr(base_env, "_cfg", None)
        asked = cfg.get("dynamic_seed", True) if isinstance(cfg, Mapping) else True
        self.dynamic_seed = getattr(base_env, "dynamic_seed", asked)
        self._declared = declared_space(base_env, "observation_space") if by_value else base_env.observation_space
        self.observation_space = AnyValue() if by_value else self._declared
        self.action_space = base_env.action_space
        self.metadata = {"render_modes": ["rgb_array"], **(getattr(base_env, "metadata", None) or {})}

    def _state_inside(self) -> Any:
        return self.base_env

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self._begin_reset(seed)
        return self._results_of_reset(self.base_env.reset(**(options or {})))

    def _begin_reset(self, seed: int | None) -> None:
        super().reset(seed=seed)
        if seed is not None and self.passes_seeds:
            seed_env(self.base_env, seed, self.dynamic_seed)
        if self.record_to is not None:
            self.base_env.enable_save_replay(self.record_to)
            self.record_to = None

    def _results_of_reset(self, observation: Any) -> tuple[Any, dict[str, Any]]:
        if self._is_pair_of_gymnasium(observation):
            raise EnvError(
                f"{type(self.base_env).__name__}: reset: expected only the observation, got (observation, info), as in "
                "Gymnasium. Put the info into reset_info"
            )
        info = self.base_env.reset_info
        if not isinstance(info, Mapping):
            raise EnvError(f"{type(self.base_env).__name__}: reset_info: expected a dict, got {info!r}")
        return observation, dict(info)

    def _is_pair_of_gymnasium(self, observation: Any) -> bool:
        """Whether it cannot be an observation of two parts."""
        is_pair = isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict)
        space = self._declared
        return is_pair and not (
            space is None or (isinstance(space, spaces.Tuple) and isinstance(space.spaces[-1], spaces.Dict))
        )

    def step(self, action: Any) -> Any:
        if isinstance(action, _SCALAR) or not isinstance(action, (np.ndarray, tuple, dict)):
            action = np.asarray(action)
        return self._results_of_step(self.base_env.step(action))

    def _results_of_step(self, timestep: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        try:
            obs, done, info, given = timestep.obs, timestep.done, timestep.info, timestep.reward
            is_cut_off = bool(info.get("TimeLimit.truncated", False)) if info else False
        except AttributeError:
            raise EnvError(
                f"{type(self.base_env).__name__}: step: expected a BaseEnvTimestep(obs, reward, done, info), got "
                f"{timestep!r:.200}"
            ) from None
        if type(done) is not bool:
            done = truth(type(self.base_env).__name__, "done", done)
        if type(given) is np.ndarray and given.dtype is _FLOAT32 and given.shape == (1,):  # as the contract says
            reward = given.item()
        else:
            reward, info = self._reward(given, info)
        if type(timestep) is not BaseEnvTimestep and (more := more_fields(timestep)):
            info = {**info, LEFTOVER: Leftover.of(timestep, more)} if self.keeps_timesteps else {**more, **info}
        return obs, reward, done and not is_cut_off, done and is_cut_off, info

    def _reward(self, given: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        rewards = self._numbers(given)
        if rewards.size == 1:
            return rewards.item(), info
        return float(rewards.sum()), {**info, "rewards": rewards}

    def _numbers(self, given: Any) -> np.ndarray:
        rewards = np.asarray(given)
        if rewards.size == 0 or rewards.dtype.kind not in "fiu":
            raise EnvError(
                f"{type(self.base_env).__name__}: step: expected a float32 array of shape (1,) as reward, got {given!r}"
            )
        return rewards

    @property
    def render_mode(self) -> str | None:  # type: ignore[override]
        """The env's own if it has one; else ``rgb_array`` if it has a renderer."""
        has_renderer = type(self.base_env).render is not BaseEnv.render
        return getattr(self.base_env, "render_mode", "rgb_array" if has_renderer else None)

    def render(self) -> Any:
        return self.base_env.render()

    def close(self) -> Any:
        return self.base_env.close()

    def __repr__(self) -> str:
        """The env inside."""
        return repr(self.base_env)

    def __str__(self) -> str:
        """In brackets, as Gymnasium's wrappers show what they wrap."""
        return f"<{self.base_env!r}>"


class TeamAsGymnasium(AsGymnasium):
    """A ``BaseEnv`` with many agents as pools step it: spaces of one agent, values with one row per agent."""

    def __init__(self, base_env: BaseEnv) -> None:
        super().__init__(base_env)
        self.num_players = base_env.num_agents
        for name in ("observation_space", "action_space"):
            space = player_space(getattr(base_env, name), self.num_players)
            if space is None:
                raise UnsupportedError(
                    f"{base_env!r}: {name}: expected one row per agent, got {getattr(base_env, name)}"
                )
            setattr(self, name, space)

    def _reward(self, given: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        rewards = self._numbers(given)
        if rewards.size == 1:
            return rewards.item(), info  # all agents share it
        return rewards.reshape(-1), info


class _WithCoroutines(AsGymnasium):
    """A ``BaseEnv`` whose ``reset`` and ``step`` are coroutines, or one of them."""

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # type: ignore[override]
        self._begin_reset(seed)
        observation = self.base_env.reset(**(options or {}))
        return self._results_of_reset(await observation if inspect.isawaitable(observation) else observation)

    async def step(self, action: Any) -> Any:  # type: ignore[override]
        timestep = self.base_env.step(np.asarray(action) if isinstance(action, _SCALAR) else action)
        return self._results_of_step(await timestep if inspect.isawaitable(timestep) else timestep)


class _TeamWithCoroutines(_WithCoroutines, TeamAsGymnasium):
    """The same with many agents."""


def gymnasium_of(base_env: BaseEnv, *, by_value: bool = False, is_team: bool = False) -> AsGymnasium:
    """The adapter that a ``BaseEnv`` needs; ``is_team``: pools step it, and each of its agents is a player."""
    is_async = defines_coroutines(type(base_env))
    if is_team:
        return (_TeamWithCoroutines if is_async else TeamAsGymnasium)(base_env)
    return (_WithCoroutines if is_async else AsGymnasium)(base_env, by_value)


def player_space(space: spaces.Space[Any], players: int) -> spaces.Space[Any] | None:
    """The space of one agent if every part of ``space`` has the same row for each agent; else None."""
    rows = map_tree(lambda part: _row_space(part, players), tree_of(space))
    return None if any(row is None for row in leaves(rows)) else space_from(rows)


def _row_space(space: spaces.Space[Any], players: int) -> spaces.Space[Any] | None:
    if not space.shape or space.shape[0] != players:
        return None
    if isinstance(space, spaces.Box) and _rows_are_equal(space.low) and _rows_are_equal(space.high):
        return spaces.Box(space.low[0], space.high[0], space.shape[1:], space.dtype.type)
    if isinstance(space, spaces.MultiDiscrete) and _rows_are_equal(space.nvec) and _rows_are_equal(space.start):
        if len(space.shape) == 1:
            return spaces.Discrete(int(space.nvec[0]), start=int(space.start[0]), dtype=space.dtype.type)
        return spaces.MultiDiscrete(space.nvec[0], space.dtype.type, start=space.start[0])
    if isinstance(space, spaces.MultiBinary):
        return spaces.MultiBinary(space.shape[1:]) if len(space.shape) > 1 else spaces.Discrete(2)
    return None


def _rows_are_equal(array: np.ndarray) -> bool:
    return bool((array == array[0]).all())
