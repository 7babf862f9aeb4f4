"""Seeds for what a package does not seed by itself, or only in its first episode."""

from __future__ import annotations

import numpy as np


class FurtherSeeds:
    """Numbers that follow from the last seed that a reset was given; from chance, until there is one."""

    def __init__(self) -> None:
        self._generator = np.random.default_rng()

    def after(self, seed: int | None) -> np.random.Generator:
        """The generator to draw from: begun anew with a seed, and going on without one."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        return self._generator
