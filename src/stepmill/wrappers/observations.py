"""Wrappers that give observations another form: stacked, flat, as a column, with the last action and reward."""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.error import CustomSpaceError
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array
from gymnasium.wrappers.utils import create_zero_array

from stepmill.errors import ActionError
from stepmill.values.arguments import whole_number
from stepmill.values.fitting import holds_arrays
from stepmill.values.trees import leaves, map_trees, step_into, tree_of
from stepmill.wrappers.base import (
    RecordedObservationWrapper,
    RecordedWrapper,
    Shapes,
    checked_observation,
    checked_reward,
    refuse,
)


class FrameStack(RecordedWrapper):
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

    _state_names = ("_frames",)

    def __init__(self, env: gymnasium.Env[Any, Any], n_frames: int = 4) -> None:
        self.n_frames = whole_number("FrameStack: n_frames", n_frames, 1)
        super().__init__(env, n_frames=n_frames)
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


_TAKEN = "a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these"


class FlatObs(RecordedObservationWrapper):
    """One flat vector of float32, laid out as ``gymnasium.spaces.utils.flatten`` does.

    Takes Box, Discrete, MultiDiscrete and MultiBinary observations, and Dicts and Tuples of these, also nested. The
    parts of a Dict come in the order of the space's keys (Gymnasium sorts the keys of a plain dict), those of a Tuple
    in their order, arrays row by row. Discrete becomes a one-hot of its ``n`` values, MultiDiscrete one one-hot for
    each of its numbers. Whole numbers beyond 2**24 are rounded to a float32.

    Args:
        env: The env to wrap.
        size: The length of the vector. It follows from the shapes, except for a MultiDiscrete, whose shape does not say
            how many values its numbers have: then ``size`` is required, so that ``new_shape`` knows it too. The error
            says what it must be.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], size: int | None = None) -> None:
        super().__init__(env, size=size)
        space = env.observation_space
        leaves = list(_leaves(space))
        flat: Any = spaces.utils.flatten_space(space)
        if size is not None and whole_number("FlatObs: size", size, 1) != flat.shape[0]:
            refuse("FlatObs", f"size {flat.shape[0]} for {space}", size)
        if size is None and any(isinstance(leaf, spaces.MultiDiscrete) for leaf in leaves):
            refuse("FlatObs", f"size={flat.shape[0]}, which does not follow from the shape of a MultiDiscrete", "none")
        self.observation_space = spaces.Box(_float32(flat.low), _float32(flat.high), dtype=np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """The observation as a vector."""
        space = self.env.observation_space
        return _float32(spaces.utils.flatten(space, checked_observation("FlatObs", space, observation)))

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, size: int | None = None) -> Shapes:
        """The observation becomes a vector of length ``size``, or with all numbers of the shapes."""
        return (_count(obs_shape) if size is None else size,), act_shape, rew_shape


def _leaves(space: spaces.Space[Any], where: str = "") -> Iterator[spaces.Space[Any]]:
    """The arrays of a space, or an error that says where it has something else."""
    if isinstance(space, spaces.Dict | spaces.Tuple) and len(space.spaces):
        children = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, child in children:
            yield from _leaves(child, step_into(where, key))
    elif holds_arrays(space):
        yield space
    else:
        refuse("FlatObs", f"{_TAKEN}, as observation{' at ' * bool(where)}{where}", space)


def _count(shape: Any) -> int:
    if isinstance(shape, dict):
        return sum(map(_count, shape.values()))
    if not isinstance(shape, tuple):
        refuse("FlatObs", "the shape of an array, or a dict or tuple of shapes", shape)
    if all(isinstance(part, int | np.integer) for part in shape):
        return int(math.prod(shape))
    return sum(map(_count, shape))


def _float32(values: Any) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond float32 is infinite, as bounds often are
        return np.asarray(values).astype(np.float32)


class ObsPlusPrevActRew(RecordedWrapper):
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


class RamWrapper(RecordedObservationWrapper):
    """Shows the 128 bytes of a console's memory as an image of one column: ``(128,)`` becomes ``(128, 1, 1)``, float32.

    Takes Box observations with one axis, of any length. The values stay unchanged; ``ScaledFloatFrame`` scales them.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            refuse("RamWrapper", "a Box observation space of shape (128,), or another with one axis", space)
        self.observation_space = spaces.Box(_as_column(space.low), _as_column(space.high), dtype=np.float32)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any) -> Shapes:
        """``(n,)`` becomes ``(n, 1, 1)``."""
        if not isinstance(obs_shape, tuple | list) or len(obs_shape) != 1:
            refuse("RamWrapper", "the shape (128,), or another with one axis", obs_shape)
        return (*obs_shape, 1, 1), act_shape, rew_shape

    def observation(self, observation: Any) -> Any:
        """A copy of the memory as a column."""
        return _as_column(checked_observation("RamWrapper", self.env.observation_space, observation))


def _as_column(ram: Any) -> Any:
    return np.array(ram, np.float32).reshape(-1, 1, 1)
