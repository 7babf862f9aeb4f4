"""What EnvPool shows of a pool, from what we do: ``EnvSpec``, spaces and configuration; ``Results``, those of a step.

Discrete observations are int32, and every row has every info.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.interop.envpool.arguments import Extras
from stepmill.spec import PoolSpec
from stepmill.values.spaces import spec_of
from stepmill.values.trees import map_tree

Convert = Callable[[Any], Any]

_NO_LIMIT = 2**31 - 1  # EnvPool's steps of an episode without a limit
_POOL_KEYS = ("num_envs", "batch_size", "num_threads", "max_num_players", "thread_affinity_offset")


@dataclass
class ArraySpec:
    """One array. A shape that begins with -1 has a row per player."""

    shape: list[int]
    dtype: Any
    minimum: Any
    maximum: Any
    is_discrete: bool = False


class EnvSpec:
    """What ``make_spec`` returns, and the ``spec`` of a pool. Its attributes may be set, and new ones added."""

    additional_wrappers: tuple[Any, ...] = ()  # Gymnasium's wrappers add themselves in a copy

    def __init__(self, spec: PoolSpec, extras: Extras) -> None:
        self.id = spec.id
        self.observation_space, _ = shown_observation(spec.observation_space)
        self.action_space = spec.action_space
        self.info_space = spec.info_space
        own_threshold = extras.reward_threshold
        self.reward_threshold = spec.reward_threshold if own_threshold is None else own_threshold
        self.max_episode_steps = spec.max_episode_steps or _NO_LIMIT
        self.config = _config(spec, self.max_episode_steps, self.reward_threshold, extras.reset_returns_info)

    def __repr__(self) -> str:
        return f"EnvSpec({self.id}, {self.settings()})"

    def settings(self) -> str:
        """The configuration as a text."""
        return ", ".join(f"{key}={value!r}" for key, value in self.config._asdict().items())

    @property
    def gymnasium_observation_space(self) -> spaces.Space[Any]:
        """The same as ``observation_space``."""
        return self.observation_space

    @property
    def gymnasium_action_space(self) -> spaces.Space[Any]:
        """The same as ``action_space``."""
        return self.action_space

    # ---- as dm_env specs ---------------------------------------------------------------------

    def observation_spec(self) -> Any:
        """The ``observation`` of a TimeStep: a named tuple of dm_env specs."""
        env_id = _any_int32("env_id")
        parts = {"env_id": env_id, "players": named("players", ("env_id",))(env_id)}
        parts |= {**self._observations(), **self._infos()}
        return named("State", tuple(parts))(*parts.values())

    def action_spec(self) -> Any:
        """The action as dm_env specs."""
        return _specs(self.action_space, "action")

    def _observations(self) -> dict[str, Any]:
        names = names_of_observation(self.observation_space)
        if names is None:
            return {"obs": _specs(self.observation_space, "obs")}
        assert isinstance(self.observation_space, spaces.Dict)
        return {name: _specs(self.observation_space[name], name) for name in names}

    def _infos(self) -> dict[str, Any]:
        return {key: _specs(space, key) for key, space in self.info_space.items() if is_field(key)}

    # ---- as arrays ---------------------------------------------------------------------------

    @property
    def action_array_spec(self) -> dict[str, ArraySpec]:
        """The arrays that ``send`` takes in a dict."""
        own = self.action_spec()
        own = own if isinstance(own, dict) else {"action": own}
        ids = {"env_id": _array(_any_int32("")), "players.env_id": _array(_any_int32(""), per_player=True)}
        return ids | {key: array for name, one in own.items() for key, array in _arrays(name, one, per_player=True)}

    @property
    def state_array_spec(self) -> dict[str, ArraySpec]:
        """The arrays of a result."""
        whole, flag = _any_int32(""), ArraySpec([], np.dtype(bool), False, True)
        reward, discount = ((np.dtype(np.float32), *bounds) for bounds in ((-np.inf, np.inf), (0.0, 1.0)))
        fixed = {
            "info:env_id": _array(whole),
            "info:players.env_id": _array(whole, per_player=True),
            "elapsed_step": _array(whole),
            "done": flag,
            "reward": ArraySpec([-1], *reward),
            "discount": ArraySpec([-1], *discount),
            "step_type": _array(whole),
            "trunc": flag,
        }
        own = {(name if name == "obs" else f"obs:{name}"): one for name, one in self._observations().items()}
        own |= {f"info:{name}": one for name, one in self._infos().items()}
        return fixed | {key: array for name, one in own.items() for key, array in _arrays(name, one)}


# ---- results -------------------------------------------------------------------------------------


class Results:
    """Converts results. It does not know the pool: the engine has it, and a pool ends when its last user is gone."""

    as_reset = False  # whether the next result of `recv` has the form of a reset

    def __init__(self, spec: PoolSpec) -> None:
        _, self._convert = shown_observation(spec.observation_space)
        self._infos = [(key, one.shape or (), one.dtype) for key, one in spec.info_space.items()]

    def parts(self, obs: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Observations and infos as EnvPool has them."""
        if self._convert is not None:
            obs = self._convert(obs)
        for key, shape, dtype in self._infos:
            if key not in info:  # no row has it: all of them begin an episode
                info[key] = np.zeros((len(info["env_id"]), *shape), dtype)
        return obs, info

    def begun(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """What ``reset`` returns."""
        return self.parts(*result)

    def stepped(self, result: Any) -> tuple[Any, ...]:
        """What ``step`` returns."""
        shown = self.in_programs(result)
        if self.as_reset:
            self.as_reset = False
            return shown[0], shown[-1]
        return shown

    def in_programs(self, result: Any) -> tuple[Any, ...]:
        """What ``step`` returns inside of ``jax.jit``: nothing here depends on who has asked."""
        obs, reward, terminated, truncated, info = result
        obs, info = self.parts(obs, info)
        return obs, reward, terminated, truncated, info


# ---- observations and their names ----------------------------------------------------------------


def shown_observation(space: spaces.Space[Any]) -> tuple[spaces.Space[Any], Convert | None]:
    """The space that EnvPool shows for ours, and how a batch of observations becomes one of it, if it has to."""
    if is_int32(space):
        return space, _as_int32
    if isinstance(space, spaces.Tuple) and all(map(is_int32, space)):  # Blackjack's
        low = min(int(one.start) for one in space)
        high = max(int(one.start + one.n) - 1 for one in space)
        return spaces.Box(low, high, (len(space),), np.int32), _in_columns
    if not isinstance(space, spaces.Dict):
        return space, None
    parts = {key: shown_observation(one) for key, one in space.items()}
    converts = {key: convert for key, (_, convert) in parts.items() if convert is not None}
    if not converts:
        return space, None
    shown = spaces.Dict({key: one for key, (one, _) in parts.items()})
    return shown, lambda obs: {**obs, **{key: convert(obs[key]) for key, convert in converts.items()}}


def is_int32(space: Any) -> bool:
    """Whether it is a discrete space whose values fit into EnvPool's type for them. Others stay as they are."""
    if not isinstance(space, spaces.Discrete):
        return False
    limits = np.iinfo(np.int32)
    return bool(limits.min <= space.start and space.start + space.n - 1 <= limits.max)


def names_of_observation(space: spaces.Space[Any]) -> list[str] | None:
    """The fields of a dm observation, one per key of a Dict; None: it is one field, ``obs``."""
    if not isinstance(space, spaces.Dict) or not all(map(is_field, space)):
        return None
    return list(space)


def is_field(name: Any) -> bool:
    """Whether a named tuple can have a field of that name."""
    return isinstance(name, str) and name.isidentifier() and not iskeyword(name) and name[0] != "_"


def _as_int32(obs: np.ndarray) -> np.ndarray:
    return obs.astype(np.int32)


def _in_columns(obs: tuple[Any, ...]) -> Any:
    if isinstance(obs[0], np.ndarray):
        return np.stack(obs, axis=-1, dtype=np.int32, casting="unsafe")
    return obs[0].__array_namespace__().stack([one.astype(np.int32) for one in obs], axis=-1)  # of JAX


# ---- named tuples --------------------------------------------------------------------------------


@functools.cache
def named(name: str, fields: tuple[str, ...]) -> Any:
    """The type of a named tuple, one for each set of fields."""
    return namedtuple(name, fields)


def _config(spec: PoolSpec, max_episode_steps: int, reward_threshold: float | None, reset_returns_info: bool) -> Any:
    seeds = spec.config["seed"]
    is_counted = seeds == list(range(seeds[0], seeds[0] + len(seeds)))
    values = {
        **{key: spec.config[key] for key in _POOL_KEYS},
        "base_path": "",
        "seed": seeds[0] if is_counted else 0,
        "env_seed": [] if is_counted else seeds,
        "gym_reset_return_info": reset_returns_info,
        "max_episode_steps": max_episode_steps,
        **({} if reward_threshold is None else {"reward_threshold": reward_threshold}),
        **{key: value for key, value in spec.env_configs[0].items() if is_field(key)},
    }
    return namedtuple("Config", list(values))(*values.values())


# ---- leaves --------------------------------------------------------------------------------------


def _any_int32(name: str) -> Any:
    from dm_env import specs

    limits = np.iinfo(np.int32)
    return specs.BoundedArray((), np.int32, limits.min, limits.max, name)


def _specs(space: spaces.Space[Any], name: str) -> Any:
    """A space as dm_env specs, as EnvPool has them: discrete values are int32, bounds that all share are one number."""
    from dm_env import specs

    def leaf(one: Any) -> Any:
        if isinstance(one, specs.DiscreteArray) and one.num_values <= np.iinfo(np.int32).max + 1:
            return specs.DiscreteArray(one.num_values, np.int32, one.name)
        if isinstance(one, specs.BoundedArray):
            return specs.BoundedArray(one.shape, one.dtype, _bound(one, "minimum"), _bound(one, "maximum"), one.name)
        return one

    return map_tree(leaf, spec_of(space, name))


def _arrays(name: str, tree: Any, per_player: bool = False) -> list[tuple[str, ArraySpec]]:
    """The arrays of a tree of dm_env specs, by name."""
    if not isinstance(tree, dict | tuple):
        return [(name, _array(tree, per_player))]
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [array for key, part in parts for array in _arrays(f"{name}.{key}", part, per_player)]


def _array(one: Any, per_player: bool = False) -> ArraySpec:
    shape = ([-1] if per_player else []) + list(one.shape)
    return ArraySpec(shape, one.dtype, _bound(one, "minimum"), _bound(one, "maximum"))


def _bound(one: Any, name: str) -> Any:
    """A number if it is the same for all elements; None if there is no bound, as for objects."""
    bound = np.asarray(getattr(one, name, None))
    return bound.flat[0].item() if bound.size and (bound == bound.flat[0]).all() else bound
