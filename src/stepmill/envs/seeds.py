"""The seeds of an env's episodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from stepmill.arguments import true_or_false, whole_number
from stepmill.errors import EnvError, summary

__all__ = ["SEED_BITS", "EpisodeSeeds", "explained_seeds"]

SEED_BITS = 63
_FEW_BITS = 32  # the limit of numpy's RandomState, and of many envs


class EpisodeSeeds:
    """Static: every episode has the same seed. Dynamic: each has a new seed, and the whole run repeats.

    Dynamic seeds have ``bits`` bits and come from the env's own generator. With 63 bits no two envs draw the same seed;
    fewer are for envs that do not accept more.
    """

    def __init__(self, seed: Any, dynamic: Any = True, bits: int = SEED_BITS) -> None:
        self.dynamic = true_or_false("dynamic_seed", dynamic)
        # A dynamic seed only seeds the generator, so it may have more bits than the env accepts.
        self.seed = whole_number("seed", seed, 0, 2 ** (SEED_BITS if self.dynamic else bits) - 1)
        self._limit = 2**bits
        self._generator = np.random.Generator(np.random.PCG64(self.seed))

    def next(self) -> int:
        """The seed of the next episode."""
        if not self.dynamic:
            return self.seed
        return int(self._generator.integers(self._limit))


@contextlib.contextmanager
def explained_seeds(owner: Any, seed: int | None) -> Iterator[None]:
    """Around a reset of the env inside ``owner``: says what to do if the env does not accept seeds of that size."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        is_large = seed is not None and seed >= 2**_FEW_BITS
        if is_large and (isinstance(error, OverflowError) or "seed" in str(error).lower()):
            raise EnvError(
                f"{owner!r}: reset: expected an env that accepts seeds of {SEED_BITS} bits, got {summary(error)}. "
                f"{type(owner).__name__}(env, cfg={{'seed_bits': {_FEW_BITS}}}) gives it smaller seeds"
            ) from error
        raise
