"""An env of DI-engine as managers step it: what its spaces do not describe goes through as well.

DI-engine's own managers look at no space, so many of its envs have spaces that say something else than what they take
and show: a ``Dict`` with a part for each agent where policies send one array with a row for each; the space of one
player where there are two; none at all. What a space describes travels in arrays, and actions are checked. The rest
travels pickled, as it is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.any_value import AnyValue
from stepmill.envs.as_gymnasium import AsGymnasium
from stepmill.envs.ding import DingAsBaseEnv
from stepmill.envs.leftover import LEFTOVER, Leftover, more_fields
from stepmill.envs.returned import truth
from stepmill.numbers import as_numbers
from stepmill.spaces import FlatSpace, Tree, flatten

__all__ = ["DingAsItIs"]

_FLOAT32 = np.dtype(np.float32)


class DingAsItIs(AsGymnasium):
    """Takes a pair: the action as its space describes it, and ``(action,)`` where it does not, else None.

    Args:
        base_env: The env.
        by_value: Whether no observation is held to the space.
    """

    base_env: DingAsBaseEnv

    def __init__(self, base_env: DingAsBaseEnv, by_value: bool = False) -> None:
        super().__init__(base_env)
        if by_value or not isinstance(base_env.observation_space, spaces.Space):
            self.observation_space = AnyValue()
        declared = base_env.action_space
        self.action_space = spaces.Tuple(
            [declared if isinstance(declared, spaces.Space) else spaces.Tuple([]), AnyValue()]
        )
        self._shown = flatten(self.observation_space)
        self._nothing = _zeros(self._shown.tree, self._shown)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        if _describes(self._shown.tree, self._shown, observation):
            return observation, info
        return self._nothing, {**info, LEFTOVER: Leftover({"obs": copy.deepcopy(observation)})}

    def _is_pair_of_gymnasium(self, observation: Any) -> bool:
        """What two players see may look like one."""
        return not isinstance(self.observation_space, AnyValue) and super()._is_pair_of_gymnasium(observation)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        described, sent = action
        timestep = self.base_env.step(described) if sent is None else self.base_env.pass_on(sent[0])
        obs, reward, done, info = timestep.obs, timestep.reward, timestep.done, timestep.info
        left = more_fields(timestep)
        if not _describes(self._shown.tree, self._shown, obs):
            left["obs"], obs = copy.deepcopy(obs), self._nothing
        if type(reward) is not np.ndarray or reward.dtype is not _FLOAT32 or reward.shape != (1,):
            numbers = as_numbers(reward)
            if numbers is None or numbers.size != 1:
                left["reward"] = copy.deepcopy(reward)
            reward = 0.0 if numbers is None else float(numbers.sum())  # a dict by agent counts nothing
        else:
            reward = reward.item()
        if not isinstance(info, Mapping):
            left["info"], info = info, {}
        if type(done) is not bool:
            done = truth(type(self.base_env.env).__name__, "done", done)
        is_cut_off = bool(info.get("TimeLimit.truncated", False))
        if left:
            info = {**info, LEFTOVER: Leftover.of(timestep, left)}
        return obs, reward, done and not is_cut_off, done and is_cut_off, info


def _describes(tree: Tree, space: FlatSpace, value: Any) -> bool:
    """Whether a space has a place for an observation. Bounds are not looked at."""
    if isinstance(tree, int):
        if tree < 0:
            return True
        leaf = space.leaves[tree]
        if type(value) is not np.ndarray:
            value = as_numbers(value)
        return value is not None and value.shape == leaf.shape and np.can_cast(value.dtype, leaf.dtype, "same_kind")
    if isinstance(tree, dict):
        return (
            isinstance(value, dict)
            and value.keys() == tree.keys()
            and all(_describes(child, space, value[key]) for key, child in tree.items())
        )
    return (
        isinstance(value, tuple | list)
        and len(value) == len(tree)
        and all(_describes(child, space, part) for child, part in zip(tree, value, strict=True))
    )


def _zeros(tree: Tree, space: FlatSpace) -> Any:
    if isinstance(tree, dict):
        return {key: _zeros(child, space) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_zeros(child, space) for child in tree)
    return None if tree < 0 else np.zeros(space.leaves[tree].shape, space.leaves[tree].dtype)
