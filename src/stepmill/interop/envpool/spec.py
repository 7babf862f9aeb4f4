"""``EnvSpec``: the spaces and the configuration of a pool, in the form of EnvPool's specs."""

from __future__ import annotations

import functools
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.interop.envpool.arguments import Extras
from stepmill.interop.envpool.results import is_field, names_of_observation, shown_observation
from stepmill.spec import PoolSpec
from stepmill.values.spaces import spec_of
from stepmill.values.trees import map_tree

__all__ = ["ArraySpec", "EnvSpec"]

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


# ---- named tuples ----------------------------------------------------------------------------


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
