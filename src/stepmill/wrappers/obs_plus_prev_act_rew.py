"""``ObsPlusPrevActRew``: the last action and its reward as part of the observation."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers.utils import create_zero_array

from stepmill.errors import ActionError
from stepmill.values.fitting import holds_arrays
from stepmill.values.trees import map_trees, tree_of
from stepmill.wrappers.base import Shapes, ShapeTeller, refuse
from stepmill.wrappers.checks import checked_reward

__all__ = ["ObsPlusPrevActRew"]


class ObsPlusPrevActRew(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """The observation becomes a Dict of ``obs``, ``prev_action`` and ``prev_reward_extrinsic``.

    ``prev_action`` is a copy of the action of this step, in the type of the action space; it is not clipped, so an
    action outside its space is shown unchanged. ``prev_reward_extrinsic`` is the env's reward of this step, a float32
    array of shape ``(1,)``.

    At a reset the reward is 0 and the action is the one in the action space that is nearest to zero: 0 for a Box that
    contains it, the first action (``start``) for Discrete and MultiDiscrete. So ``prev_action`` is always a valid
    action, and "none yet" looks like that one; a -1 would be outside the space.

    The reward must be one number; observations and actions may be anything, also Dicts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self)
        try:
            create_zero_array(env.action_space)
        except CustomSpaceError:
            refuse("ObsPlusPrevActRew", "an action space of Gymnasium's", env.action_space)
        # Copies: sampling from or seeding these does not affect the env's own spaces.
        self.observation_space = spaces.Dict(
            {
                "obs": copy.deepcopy(env.observation_space),
                "prev_action": copy.deepcopy(env.action_space),
                "prev_reward_extrinsic": spaces.Box(-np.inf, np.inf, (1,), np.float32),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode: no action and no reward yet."""
        observation, info = super().reset(seed=seed, options=options)
        return _together(observation, create_zero_array(self.env.action_space), 0.0), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, with its action and reward in the observation."""
        taken = self._copy(action)  # before the env can change it
        observation, reward, terminated, truncated, info = super().step(action)
        number = checked_reward("ObsPlusPrevActRew", reward)
        return _together(observation, taken, number), reward, terminated, truncated, info

    def _copy(self, action: Any) -> Any:
        try:
            return map_trees(_own, tree_of(self.env.action_space), action)
        except (KeyError, TypeError, ValueError):
            expected = f"an action of {self.env.action_space}"
            raise ActionError(f"ObsPlusPrevActRew: expected {expected}, got {action!r}") from None

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any) -> Shapes:
        """The observation becomes a dict of three."""
        return {"obs": obs_shape, "prev_action": act_shape, "prev_reward_extrinsic": (1,)}, act_shape, rew_shape


def _together(observation: Any, action: Any, reward: float) -> dict[str, Any]:
    return {
        "obs": observation,
        "prev_action": action,
        "prev_reward_extrinsic": np.array([reward], np.float32),
    }


def _own(space: Any, action: Any) -> Any:
    """A copy of an action, in the type of its space."""
    if not holds_arrays(space):
        return copy.deepcopy(action)
    if isinstance(space, spaces.Discrete):
        return space.dtype.type(np.asarray(action).item())
    own = np.array(action, space.dtype)
    if own.shape != space.shape:
        raise ValueError(own.shape)
    return own
