"""What an env gives to a wrapper, held against its space: of anything else a wrapper would make nonsense."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np
from gymnasium import spaces

from stepmill.errors import EnvError, ObservationError
from stepmill.numbers import as_numbers, cast, description

__all__ = ["given_array", "given_dict", "given_observation", "one_number"]


def given_array(wrapper: str, space: spaces.Space[Any], value: Any, where: str = "") -> np.ndarray:
    """An observation as an array of the space's shape and type, not a copy where it is one already.

    As pools do it, widths are cast where no value changes. Bounds of a Box are not looked at.

    Args:
        wrapper: Who asks, for the error.
        space: A Box, Discrete, MultiDiscrete or MultiBinary.
        value: What the env gave.
        where: In which part of the observation, for the error: ``"['eye']"``.
    """
    array = as_numbers(value)
    if array is None or array.shape != space.shape:
        _refuse(wrapper, where, f"of shape {space.shape}", value)
    if array.dtype != space.dtype:
        fitting = cast(array, np.dtype(space.dtype))
        if fitting is None:
            _refuse(wrapper, where, f"of numbers that {space.dtype} can hold", value)
        array = fitting
    # Their values are places among so many: one too many would be taken for another one's.
    if not isinstance(space, spaces.Box) and not space.contains(array):
        _refuse(wrapper, where, f"of {space}", value)
    return array


def given_dict(wrapper: str, keys: Iterable[str], value: Any, where: str = "") -> Mapping[str, Any]:
    """An observation that has these keys."""
    keys = list(keys)
    if not isinstance(value, Mapping):
        _refuse(wrapper, where, f"that is a dict of {', '.join(keys)}", value)
    if any(key not in value for key in keys):
        _refuse(wrapper, where, f"with the keys {', '.join(keys)}", list(value))
    return value


def given_observation(wrapper: str, space: spaces.Space[Any], value: Any, where: str = "") -> Any:
    """An observation of arrays, or Dicts and Tuples of these, each as ``given_array`` has it."""
    if isinstance(space, spaces.Dict):
        parts = given_dict(wrapper, space.spaces, value, where)
        return {
            key: given_observation(wrapper, child, parts[key], f"{where}[{key!r}]")
            for key, child in space.spaces.items()
        }
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            _refuse(wrapper, where, f"that is a tuple of {len(space.spaces)} parts", value)
        return tuple(
            given_observation(wrapper, child, part, f"{where}[{index}]")
            for index, (child, part) in enumerate(zip(space.spaces, value, strict=True))
        )
    return given_array(wrapper, space, value, where)


def one_number(wrapper: str, reward: Any) -> float:
    """A reward as a float. An array of one element is taken; of many agents there is no one number."""
    if isinstance(reward, float | int):
        return float(reward)
    array = as_numbers(reward)
    if array is None or array.size != 1:
        raise EnvError(f"{wrapper}: expected one number as reward, got {reward!r}")
    return float(array.item())


def _refuse(wrapper: str, where: str, expected: str, got: Any) -> NoReturn:
    at = f" at {where}" if where else ""
    raise ObservationError(f"{wrapper}: expected an observation{at} {expected}, got {description(got)}")
