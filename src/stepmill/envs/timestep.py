"""What a ``BaseEnv`` returns from ``step``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

__all__ = ["BaseEnvTimestep", "is_timestep"]


class BaseEnvTimestep(NamedTuple):
    """One step of a ``BaseEnv``.

    Your own may have more fields: ``namedtuple("MyTimestep", [*BaseEnvTimestep._fields, "act"])``, or ``act`` after
    ``obs``, as in older envs. In a pool these are keys of the info; the timesteps of a manager have them as fields.
    """

    obs: Any
    # float32, of shape (1,); with many agents (num_agents,) or (1,). Managers can make it a tensor.
    reward: np.ndarray | Any
    done: bool
    info: dict[str, Any]


def is_timestep(value: Any) -> bool:
    """Whether a value has the four fields, in their order, perhaps with others among them.

    The names tell, not the number: five values are also what Gymnasium's ``step`` returns.
    """
    names = getattr(value, "_fields", ())
    return tuple(name for name in names if name in BaseEnvTimestep._fields) == BaseEnvTimestep._fields
