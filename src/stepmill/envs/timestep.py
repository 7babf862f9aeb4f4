"""What a ``BaseEnv`` returns from ``step``, and how it describes itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

__all__ = ["BaseEnvInfo", "BaseEnvTimestep", "EnvElementInfo", "element_info_of"]


class BaseEnvTimestep(NamedTuple):
    """One step of a ``BaseEnv``.

    A tuple with more parts has these four and its own: ``namedtuple("MyTimestep", [*BaseEnvTimestep._fields, "act"])``.
    In a pool these are keys of the info; a manager hands out timesteps that have them.
    """

    obs: Any
    reward: Any  # float32, of shape (1,); of many agents (num_agents,) or (1,)
    done: bool
    info: dict[str, Any]


@dataclass
class EnvElementInfo:
    """The shape of an observation, an action or a reward, its ``min``, ``max`` and ``dtype`` in ``value``."""

    shape: Any
    value: Any
    to_agent_processor: Callable[..., Any] | None = None
    from_agent_processor: Callable[..., Any] | None = None


@dataclass
class BaseEnvInfo:
    """What ``BaseEnv.info()`` says. A subclass may add fields, with defaults."""

    agent_num: int
    obs_space: Any
    act_space: Any
    rew_space: Any
    use_wrappers: str | None = None


def element_info_of(space: spaces.Space[Any]) -> EnvElementInfo:
    """A space in the old form: ``Discrete(n)`` has shape ``(n,)``; Dict and Tuple have a shape and a value a part."""
    shape, value = _shape_and_value(space)
    return EnvElementInfo(shape, value)


def _shape_and_value(space: spaces.Space[Any]) -> tuple[Any, Any]:
    if isinstance(space, spaces.Dict):
        parts = {key: _shape_and_value(child) for key, child in space.items()}
        return {key: part[0] for key, part in parts.items()}, {key: part[1] for key, part in parts.items()}
    if isinstance(space, spaces.Tuple):
        both = [_shape_and_value(child) for child in space.spaces]
        return tuple(one[0] for one in both), tuple(one[1] for one in both)
    if isinstance(space, spaces.Discrete):
        start, n = int(space.start), int(space.n)
        return (n,), {"min": start, "max": start + n, "dtype": np.dtype(space.dtype).type}
    if isinstance(space, spaces.Box):
        return space.shape, {"min": space.low, "max": space.high, "dtype": space.dtype.type}
    if isinstance(space, spaces.MultiDiscrete):
        return space.shape, {"min": space.start, "max": space.start + space.nvec, "dtype": space.dtype.type}
    if isinstance(space, spaces.MultiBinary):
        return space.shape, {"min": 0, "max": 1, "dtype": np.dtype(space.dtype).type}
    return getattr(space, "shape", None), None  # text, graphs, sequences, no space at all: no bounds to speak of
