"""The seeds of an env's episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepmill.arguments import true_or_false, whole_number

__all__ = ["EpisodeSeeds"]

_SEED_LIMIT = 2**63


class EpisodeSeeds:
    """Static: every episode has the same seed. Dynamic: each has a new one, and the whole run repeats.

    Dynamic seeds are 63 bits from a generator of the env's own, so that no two envs draw the same one.
    """

    def __init__(self, seed: Any, dynamic: Any = True) -> None:
        self.seed = whole_number("seed", seed, 0, _SEED_LIMIT - 1)
        self.dynamic = true_or_false("dynamic_seed", dynamic)
        self._generator = np.random.Generator(np.random.PCG64(self.seed))

    def next(self) -> int:
        """The seed of the next episode."""
        if not self.dynamic:
            return self.seed
        return int(self._generator.integers(_SEED_LIMIT))
