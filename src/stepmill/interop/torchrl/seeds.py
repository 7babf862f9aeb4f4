"""Seeds that wait for resets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepmill.settings import check_seeds

__all__ = ["Seeds"]


class Seeds:
    """Each env gets its seed at its next reset: a reset in the middle of an episode would tear a transition apart."""

    def __init__(self, num_envs: int) -> None:
        self._waiting: list[int | None] = [None] * num_envs

    def set(self, seed: Any) -> None:
        """A seed for each env: env i has ``seed + i``; or a list with one per env. None: no env gets one."""
        count = len(self._waiting)
        self._waiting = [None] * count if seed is None else list(check_seeds(seed, range(count)))

    def take(self, env_ids: Iterable[int]) -> list[int | None] | None:
        """The seeds for a reset of these envs, which have then got them; None if there are none."""
        ids = list(env_ids)
        taken = [self._waiting[one] for one in ids]
        if all(one is None for one in taken):
            return None
        for one in ids:
            self._waiting[one] = None
        return taken
