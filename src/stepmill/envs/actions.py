"""Actions as arrays, lists or numbers, and as an env of some space takes them in ``step``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from stepmill.errors import ActionError
from stepmill.numbers import cast, description

__all__ = ["ActionReader", "action_reader"]

ActionReader = Callable[[Any], Any]


def action_reader(space: spaces.Space[Any], owner: str, path: str = "action") -> ActionReader:
    """A function from actions as arrays, lists or numbers to what an env of that space takes in ``step``."""
    if isinstance(space, spaces.Dict):
        return _DictAction(
            {key: action_reader(child, owner, f"{path}[{key!r}]") for key, child in space.items()}, owner, path
        )
    if isinstance(space, spaces.Tuple):
        return _TupleAction(
            [action_reader(child, owner, f"{path}[{i}]") for i, child in enumerate(space.spaces)], owner, path
        )
    if isinstance(space, spaces.Discrete):
        return _NumberAction(space, owner, path)
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return _ArrayAction(space, owner, path)
    return _as_it_is


def _as_it_is(action: Any) -> Any:
    return action


# Classes, not closures: an env is pickled with its reader.


@dataclass(frozen=True)
class _NumberAction:
    space: spaces.Discrete
    owner: str
    path: str

    def __call__(self, action: Any) -> int:
        array = cast(action, np.dtype(np.int64))
        if array is None or array.size != 1:  # also of shape (1,), as policies give it
            _reject(self.owner, self.path, self.space, action)
        number = int(array.item())
        if not 0 <= number - int(self.space.start) < int(self.space.n):
            _reject(self.owner, self.path, self.space, action)
        return number


@dataclass(frozen=True)
class _ArrayAction:
    space: spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
    owner: str
    path: str

    def __call__(self, action: Any) -> np.ndarray:
        array = cast(action, self.space.dtype)
        if array is None or array.size != math.prod(self.space.shape):
            _reject(self.owner, self.path, self.space, action)
        array = array.reshape(self.space.shape)
        # Box bounds are the env's to treat, as in Gymnasium; an index outside of its range is nobody's.
        outside = not isinstance(self.space, spaces.Box) and not self.space.contains(array)
        if outside or np.isnan(array).any():
            _reject(self.owner, self.path, self.space, action)
        return array


@dataclass(frozen=True)
class _DictAction:
    parts: dict[str, ActionReader]
    owner: str
    path: str

    def __call__(self, action: Any) -> dict[str, Any]:
        if not isinstance(action, dict) or set(action) != set(self.parts):
            _reject(self.owner, self.path, f"a dict with the keys {', '.join(map(repr, self.parts))}", action)
        return {key: part(action[key]) for key, part in self.parts.items()}


@dataclass(frozen=True)
class _TupleAction:
    items: list[ActionReader]
    owner: str
    path: str

    def __call__(self, action: Any) -> tuple[Any, ...]:
        if not isinstance(action, tuple | list) or len(action) != len(self.items):
            _reject(self.owner, self.path, f"a tuple of {len(self.items)} parts", action)
        return tuple(item(one) for item, one in zip(self.items, action, strict=True))


def _reject(owner: str, path: str, expected: Any, got: Any) -> NoReturn:
    raise ActionError(f"{owner}: {path}: expected {expected}, got {description(got)}")
