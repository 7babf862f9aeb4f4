"""The spaces of old ``gym`` as Gymnasium's. DI-engine's envs have them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.trees import map_tree, space_from, tree_of

__all__ = ["gymnasium_space"]


def gymnasium_space(space: Any) -> Any:
    """A space of Gymnasium with the same values. What is not one of old ``gym`` is returned as it is.

    A generator is not taken over: one of old ``gym`` cannot be pickled with newer versions of numpy.
    """
    old = sys.modules.get("gym.spaces")  # nobody can have such a space without having imported it
    if old is None or not isinstance(space, old.Space):
        return space
    return space_from(map_tree(lambda leaf: _leaf(leaf, old), tree_of(space, old)))


def _leaf(space: Any, old: Any) -> Any:
    if isinstance(space, old.Discrete):
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if isinstance(space, old.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if isinstance(space, old.MultiBinary):
        return spaces.MultiBinary(space.n)
    if isinstance(space, old.Box):
        return spaces.Box(space.low, space.high, space.shape, space.dtype.type)
    return space
