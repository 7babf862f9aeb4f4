"""The spaces of old ``gym`` as Gymnasium's. DI-engine's envs have them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from gymnasium import spaces

__all__ = ["gymnasium_space"]


def gymnasium_space(space: Any) -> Any:
    """A space of Gymnasium with the same values. What is not one of old ``gym`` is returned as it is.

    A generator is not taken over: one of old ``gym`` cannot be pickled with newer versions of numpy.
    """
    old = sys.modules.get("gym.spaces")  # nobody can have such a space without having imported it
    if old is None or not isinstance(space, old.Space):
        return space
    if isinstance(space, old.Dict):
        return spaces.Dict({key: gymnasium_space(child) for key, child in space.spaces.items()})
    if isinstance(space, old.Tuple):
        return spaces.Tuple([gymnasium_space(child) for child in space.spaces])
    if isinstance(space, old.Discrete):
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if isinstance(space, old.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if isinstance(space, old.MultiBinary):
        return spaces.MultiBinary(space.n)
    if isinstance(space, old.Box):
        return spaces.Box(space.low, space.high, space.shape, space.dtype.type)
    return space
