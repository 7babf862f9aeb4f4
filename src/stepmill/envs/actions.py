"""From actions as arrays, lists or numbers to what ``step`` of an env with a certain action space takes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ActionError
from stepmill.values.casting import cast
from stepmill.values.fitting import Fitter, Misfit
from stepmill.values.trees import map_tree, tree_of

__all__ = ["action_reader"]


def action_reader(space: spaces.Space[Any], owner: str, name: str = "action") -> Fitter:
    """A function from actions as arrays, lists or numbers to what an env with that action space takes in ``step``."""
    return Fitter(map_tree(_leaf_reader, tree_of(space)), owner, name, ActionError)


def _leaf_reader(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Discrete):
        return _Number(space)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _Array(space)
    return _as_it_is


def _as_it_is(action: Any) -> Any:
    return action


# Classes, not closures: an env is pickled together with its reader. An action may have extra axes of length one, since
# policies often add them.


@dataclass(frozen=True)
class _Number:
    space: spaces.Discrete

    def __call__(self, action: Any) -> int:
        number = action if type(action) is int else _whole_number(action)
        if number is None or not 0 <= number - int(self.space.start) < int(self.space.n):
            raise Misfit(self.space, action)
        return number


def _whole_number(action: Any) -> int | None:
    array = cast(action, np.dtype(np.int64))
    return None if array is None or array.size != 1 else int(array.item())


@dataclass(frozen=True)
class _Array:
    space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary

    def __call__(self, action: Any) -> np.ndarray:
        array = cast(action, self.space.dtype)
        if array is not None and array.shape != self.space.shape and array.size == math.prod(self.space.shape):
            array = array.reshape(self.space.shape)
        if array is None or array.shape != self.space.shape:
            raise Misfit(self.space, action)
        # Values outside the bounds of a Box are left to the env, as in Gymnasium; an index out of range is an error.
        outside = not isinstance(self.space, spaces.Box) and not self.space.contains(array)
        if outside or np.isnan(array).any():
            raise Misfit(self.space, action)
        return array
