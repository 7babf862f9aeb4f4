"""The parts of a timestep that do not fit in the arrays of a pool: in the info on their way to a manager."""

from __future__ import annotations

import collections
import functools
from dataclasses import dataclass
from typing import Any

from stepmill.envs.timestep import BaseEnvTimestep

__all__ = ["LEFTOVER", "Leftover", "more_fields"]

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
    """Fields of a timestep, as its env gave them.

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
