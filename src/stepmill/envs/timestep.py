"""What a ``BaseEnv`` returns from ``step``, and the parts of it that do not fit in the arrays of a pool."""

from __future__ import annotations

import collections
import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


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


# ---- what does not fit in arrays -----------------------------------------------------------------

LEFTOVER = "stepmill.leftover"  # its key in the info

_FOUR = BaseEnvTimestep._fields


def more_fields(timestep: Any) -> dict[str, Any]:
    """The fields of a timestep beyond the usual four."""
    names = getattr(timestep, "_fields", ())
    if len(names) <= len(_FOUR):
        return {}
    return {name: getattr(timestep, name) for name in names if name not in _FOUR}


@dataclass(frozen=True, slots=True)
class Leftover:
    """Fields of a timestep, as its env gave them: in the info on their way to a manager.

    Args:
        fields: By name.
        kind: The name of the timestep's class and all of its fields, if it has more than four. The class itself stays
            in the worker: the caller need not be able to import it.
    """

    fields: dict[str, Any]
    kind: tuple[str, tuple[str, ...]] | None = None

    @classmethod
    def of(cls, timestep: Any, fields: dict[str, Any]) -> Leftover:
        """These fields of a timestep."""
        more = fields.keys() - set(_FOUR)
        return cls(fields, (type(timestep).__name__, timestep._fields) if more else None)

    def put_back(self, timestep: BaseEnvTimestep) -> Any:
        """The timestep as the env gave it."""
        whole = {**timestep._asdict(), **self.fields}
        return BaseEnvTimestep(**whole) if self.kind is None else _class_of(*self.kind)(**whole)


@functools.cache
def _class_of(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, fields)
