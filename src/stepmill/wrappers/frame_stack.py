"""``FrameStack``: the last few observations as one."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from numbers import Integral
from typing import Any, SupportsFloat

import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array

from stepmill.values.arguments import whole_number
from stepmill.values.trees import leaves, tree_of
from stepmill.wrappers.base import Shapes, ShapeTeller, refuse
from stepmill.wrappers.checks import checked_observation

__all__ = ["FrameStack"]


class FrameStack(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Stacks the last ``n_frames`` observations, oldest first, along a new first axis; at reset the first is repeated.

    Takes Box, MultiBinary and MultiDiscrete observations, and Dict and Tuple ones of these, which it stacks part by
    part.

    The axis is always new: ``(84, 84)`` becomes ``(4, 84, 84)``, a vector ``(3,)`` becomes ``(4, 3)``, an image with
    channels ``(3, 84, 84)`` becomes ``(4, 3, 84, 84)``. So one rule covers every shape, frames stay separate, and a
    network that needs ``(12, 84, 84)`` gets it with a reshape. Gymnasium's ``FrameStackObservation`` does the same but
    does not copy frames: it is wrong for an env that draws into the same memory again.

    Args:
        env: The env to wrap.
        n_frames: How many, at least 1.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], n_frames: int = 4) -> None:
        self.n_frames = whole_number("FrameStack: n_frames", n_frames, 1)
        RecordConstructorArgs.__init__(self, n_frames=n_frames)
        gymnasium.Wrapper.__init__(self, env)
        if not _can_be_stacked(env.observation_space):
            refuse(
                "FrameStack",
                "Box, MultiBinary or MultiDiscrete observations, or Dict and Tuple ones of these",
                env.observation_space,
            )
        self.observation_space = batch_space(env.observation_space, self.n_frames)
        self._frames: deque[Any] = deque(maxlen=self.n_frames)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, n_frames: int = 4) -> Shapes:
        """A new axis of ``n_frames`` in front of every observation."""
        return _stacked_shape(obs_shape, whole_number("FrameStack: n_frames", n_frames, 1)), act_shape, rew_shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode: all frames are the first one."""
        obs, info = self.env.reset(seed=seed, options=options)
        self._frames.clear()
        return self._with(obs), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes a step: drops the oldest frame and appends the new one."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with(obs), reward, terminated, truncated, info

    def _with(self, obs: Any) -> Any:
        """The stack with a new frame, in new memory."""
        space = self.env.observation_space
        # A copy: the env may draw its next frame into the same memory.
        frame = copy.deepcopy(checked_observation("FrameStack", space, obs))
        self._frames.extend([frame] * (1 if self._frames else self.n_frames))
        out: Any = create_empty_array(space, self.n_frames)
        return concatenate(space, tuple(self._frames), out)


def _can_be_stacked(space: spaces.Space[Any]) -> bool:
    # Not Discrete: its shape is given as (n,), so new_shape could not tell it from a vector of n numbers.
    taken = spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete
    return all(isinstance(leaf, taken) for leaf in leaves(tree_of(space)))


def _stacked_shape(shape: Any, n_frames: int) -> Any:
    if isinstance(shape, Mapping):
        return {key: _stacked_shape(part, n_frames) for key, part in shape.items()}
    if isinstance(shape, Integral):  # some write 3 for (3,)
        return n_frames, shape
    if any(not isinstance(length, Integral) for length in shape):
        return tuple(_stacked_shape(part, n_frames) for part in shape)
    return n_frames, *shape
