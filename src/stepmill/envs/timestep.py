"""What a ``BaseEnv`` returns from ``step``, and how it describes itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from stepmill.trees import map_tree, tree_of

__all__ = ["BaseEnvInfo", "BaseEnvTimestep", "EnvElementInfo", "element_info_of"]


class BaseEnvTimestep(NamedTuple):
    """One step of a ``BaseEnv``.

    Your own may have more fields after these four: ``namedtuple("MyTimestep", [*BaseEnvTimestep._fields, "act"])``. In
    a pool these are keys of the info; the timesteps of a manager have them as fields.
    """

    obs: Any
    # float32, of shape (1,); with many agents (num_agents,) or (1,). Managers can make it a tensor.
    reward: np.ndarray | Any
    done: bool
    info: dict[str, Any]


@dataclass
class EnvElementInfo:
    """The shape of an observation, an action or a reward; ``value`` has its ``min``, ``max`` and ``dtype``."""

    shape: Any
    value: Any
    to_agent_processor: Callable[..., Any] | None = None
    from_agent_processor: Callable[..., Any] | None = None


@dataclass
class BaseEnvInfo:
    """What ``BaseEnv.info()`` returns. A subclass may add fields with defaults."""

    agent_num: int
    obs_space: Any
    act_space: Any
    rew_space: Any
    use_wrappers: str | None = None


def element_info_of(space: spaces.Space[Any]) -> EnvElementInfo:
    """A space in the old form: ``Discrete(n)`` has shape ``(n,)``; Dict and Tuple have one shape and value per part."""
    parts = tree_of(space)
    return EnvElementInfo(map_tree(_shape, parts), map_tree(_value, parts))


def _shape(space: Any) -> Any:
    return (int(space.n),) if isinstance(space, spaces.Discrete) else getattr(space, "shape", None)


def _value(space: Any) -> dict[str, Any] | None:
    if isinstance(space, spaces.Discrete):
        start, n = int(space.start), int(space.n)
        return {"min": start, "max": start + n, "dtype": np.dtype(space.dtype).type}
    if isinstance(space, spaces.Box):
        return {"min": space.low, "max": space.high, "dtype": space.dtype.type}
    if isinstance(space, spaces.MultiDiscrete):
        return {"min": space.start, "max": space.start + space.nvec, "dtype": space.dtype.type}
    if isinstance(space, spaces.MultiBinary):
        return {"min": 0, "max": 1, "dtype": np.dtype(space.dtype).type}
    return None  # text, graphs, sequences, no space at all: they have no bounds
