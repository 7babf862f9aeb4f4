"""What travels between a pool and its actors when envs step.

Ray carries bytes as they are. Anything else it pickles and looks through for references, argument by argument, at both
ends: a fifth of what a small request costs. So one argument goes there, and one value comes back.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Answer", "Letter", "Order"]

Letter = bytes | tuple[Any, ...]

# From here on copying an answer costs more than having Ray pickle it, which carries arrays beside the pickle.
_LARGE = 1 << 16


class Order(NamedTuple):
    """What envs of an actor are to do, counted from its first one; see ``Place.exchange``.

    ``objects`` and ``options`` have, by env, the objects of its action and the options of its reset.
    """

    spare: int
    parcel: bytes | None
    objects: dict[int, bytes]
    options: dict[int, bytes]

    def written(self) -> bytes:
        return pickle.dumps(tuple(self), pickle.HIGHEST_PROTOCOL)

    @classmethod
    def read(cls, letter: bytes) -> Order:
        return cls(*pickle.loads(letter))


class Answer(NamedTuple):
    """What they did: rows, or None, what goes with some of them (row, env, bytes), and which envs failed."""

    parcel: bytes | np.ndarray | None
    notes: list[tuple[int, int, bytes]]
    faults: list[Any]

    def written(self) -> Letter:
        if self.parcel is None or len(self.parcel) < _LARGE:
            return pickle.dumps(tuple(self), pickle.HIGHEST_PROTOCOL)
        return np.frombuffer(self.parcel, np.uint8), self.notes, self.faults

    @classmethod
    def read(cls, letter: Letter) -> Answer:
        """Raises what pickle does, or a TypeError, if this is none."""
        return cls(*(pickle.loads(letter) if isinstance(letter, bytes) else letter))
