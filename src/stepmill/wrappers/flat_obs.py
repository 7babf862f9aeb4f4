"""``FlatObs``: nested observations as one vector."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.values.arguments import whole_number
from stepmill.values.fitting import holds_arrays
from stepmill.values.trees import step_into
from stepmill.wrappers.base import Shapes, ShapeTeller, refuse
from stepmill.wrappers.checks import checked_observation

__all__ = ["FlatObs"]

_TAKEN = "a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these"


class FlatObs(ShapeTeller, gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
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
        super().__init__(env)
        RecordConstructorArgs.__init__(self, size=size)
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
