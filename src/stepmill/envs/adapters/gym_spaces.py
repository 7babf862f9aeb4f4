"""Spaces of old ``gym``, which DI-engine's envs have, as Gymnasium's."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.values.trees import map_tree, space_from, tree_of

__all__ = ["gymnasium_space"]


def gymnasium_space(space: Any) -> Any:
    """A Gymnasium space with the same values. Anything but a space of old ``gym`` is returned unchanged.

    The generator is not kept: that of old ``gym`` cannot be pickled with newer versions of numpy.
    """
    old = sys.modules.get("gym.spaces")  # if there is such a space, the module has been imported
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
