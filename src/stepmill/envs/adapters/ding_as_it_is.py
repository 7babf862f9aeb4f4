"""An env of DI-engine as managers step it: values that its spaces do not describe pass through unchanged.

DI-engine's own managers do not check spaces, so many of its envs declare spaces that do not match what they accept and
return: a ``Dict`` with one part per agent while policies send one array with one row per agent; the space of one player
when there are two; none at all. What a space describes travels in arrays, and actions are checked. The rest travels
pickled and unchanged.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.adapters.any_value import AnyValue
from stepmill.envs.adapters.as_gymnasium import AsGymnasium
from stepmill.envs.adapters.ding import DingAsBaseEnv
from stepmill.envs.adapters.leftover import LEFTOVER, Leftover, more_fields
from stepmill.envs.results import truth
from stepmill.values.casting import as_numbers
from stepmill.values.fitting import fits
from stepmill.values.spaces import flatten
from stepmill.values.trees import map_tree

__all__ = ["DingAsItIs"]

_FLOAT32 = np.dtype(np.float32)


class DingAsItIs(AsGymnasium):
    """Takes a pair: the action as the space describes it, and ``(action,)`` if the space does not, else None.

    Args:
        base_env: The env.
        by_value: Whether observations need not match the space.
    """

    base_env: DingAsBaseEnv

    def __init__(self, base_env: DingAsBaseEnv, by_value: bool = False) -> None:
        super().__init__(base_env, by_value or not isinstance(base_env.observation_space, spaces.Space))
        declared = base_env.action_space
        self.action_space = spaces.Tuple(
            [declared if isinstance(declared, spaces.Space) else spaces.Tuple([]), AnyValue()]
        )
        self._form = _Form(self.observation_space)
        self._plain_kind: type | None = None  # the class of timesteps with just the four fields

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        if self._form.holds(observation):
            return observation, info
        return self._form.zeros, {**info, LEFTOVER: Leftover({"obs": copy.deepcopy(observation)})}

    def _is_pair_of_gymnasium(self, observation: Any) -> bool:
        """The observations of two players may look like such a pair."""
        return not isinstance(self.observation_space, AnyValue) and super()._is_pair_of_gymnasium(observation)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        described, sent = action
        timestep = self.base_env.step(described) if sent is None else self.base_env.pass_on(sent[0])
        obs, reward, done, info = timestep.obs, timestep.reward, timestep.done, timestep.info
        if (
            type(timestep) is self._plain_kind
            and type(info) is dict
            and type(reward) is np.ndarray
            and reward.dtype is _FLOAT32
            and reward.shape == (1,)
            and self._form.holds(obs)
        ):  # nearly all of them
            reward = reward.item()
        else:
            obs, reward, info = self._take_apart(timestep)
        if type(done) is not bool:
            done = truth(type(self.base_env.env).__name__, "done", done)
        is_cut_off = bool(info.get("TimeLimit.truncated", False)) if info else False
        return obs, reward, done and not is_cut_off, done and is_cut_off, info

    def _take_apart(self, timestep: Any) -> tuple[Any, float, Any]:
        """What fits in the arrays of the pool; the rest becomes a leftover in the info."""
        obs, reward, info = timestep.obs, timestep.reward, timestep.info
        left = more_fields(timestep)
        if not left:
            self._plain_kind = type(timestep)
        if not self._form.holds(obs):
            left["obs"], obs = copy.deepcopy(obs), self._form.zeros
        numbers = as_numbers(reward)
        if numbers is None or numbers.size != 1:
            left["reward"] = copy.deepcopy(reward)
        if not isinstance(info, Mapping):
            left["info"], info = info, {}
        if left:
            info = {**info, LEFTOVER: Leftover.of(timestep, left)}
        return obs, 0.0 if numbers is None else float(numbers.sum()), info  # a dict by agent counts nothing


class _Form:
    """Whether an observation has the form of a space. Bounds are not checked."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        flat = flatten(space)
        self._tree = flat.tree
        self._leaves = [(np.dtype(leaf.dtype), leaf.shape) for leaf in flat.leaves]
        self.zeros = map_tree(self._zero, flat.tree)

    def holds(self, value: Any) -> bool:
        if type(self._tree) is int:  # nearly always
            return self._accepts(self._tree, value)
        return fits(self._accepts, self._tree, value)

    def _accepts(self, index: int, value: Any) -> bool:
        if index < 0:
            return True
        dtype, shape = self._leaves[index]
        if type(value) is np.ndarray and value.dtype is dtype:  # nearly always
            return bool(value.shape == shape)
        numbers = as_numbers(value)
        return numbers is not None and numbers.shape == shape and np.can_cast(numbers.dtype, dtype, "same_kind")

    def _zero(self, index: int) -> np.ndarray | None:
        return None if index < 0 else np.zeros(self._leaves[index][1], self._leaves[index][0])
