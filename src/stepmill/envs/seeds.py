"""The seeds of an env, and of its episodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepmill.registry.factories import accepts
from stepmill.values.arguments import true_or_false, whole_number

SEED_BITS = 31  # of the seeds that we draw: numpy's old generator and many simulators accept no more than 32
MOST_SEED_BITS = 63  # of those that a caller may give, or ask for


class EpisodeSeeds:
    """Static: every episode has the same seed. Dynamic: each has a new seed, and the whole run repeats.

    Dynamic seeds have ``bits`` bits and come from the env's own generator. The default suits every simulator; with 63
    bits two envs hardly ever draw the same seed.
    """

    def __init__(self, seed: Any, dynamic: Any = True, bits: int = SEED_BITS) -> None:
        self.dynamic = true_or_false("dynamic_seed", dynamic)
        # A dynamic seed only seeds the generator, so it may have more bits than the env accepts. A static one goes to
        # the env; the default number of bits is our caution and says nothing about the env.
        is_free = self.dynamic or bits == SEED_BITS
        self.seed = whole_number("seed", seed, 0, 2 ** (MOST_SEED_BITS if is_free else bits) - 1)
        self._limit = 2**bits
        self._generator = np.random.Generator(np.random.PCG64(self.seed))

    def next(self) -> int:
        """The seed of the next episode."""
        if not self.dynamic:
            return self.seed
        return int(self._generator.integers(self._limit))


def seed_env(env: Any, seed: int, dynamic_seed: bool) -> None:
    """Calls ``env.seed``, without ``dynamic_seed`` if it does not accept that, as in older envs."""
    if accepts(env.seed, seed, dynamic_seed):
        env.seed(seed, dynamic_seed)
    elif accepts(env.seed, seed, dynamic_seed=dynamic_seed):
        env.seed(seed, dynamic_seed=dynamic_seed)
    else:
        env.seed(seed)
