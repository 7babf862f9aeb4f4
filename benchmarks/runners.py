"""What steps the envs of a contestant, call after call. Imports no library that is measured, see ``alone.py``."""

from __future__ import annotations

import itertools
from typing import Any

from benchmarks.alone import load

_runners = load("runners")
SEED: int = _runners.SEED
ACTION_BATCHES: int = _runners.ACTION_BATCHES
Contestant = _runners.Contestant
AsyncContestant = _runners.AsyncContestant
TianshouContestant = _runners.TianshouContestant


class ManagedContestant:
    """An env manager, ours or DI-engine's, in the loop of a collector without a policy."""

    def __init__(self, manager: Any, actions: list[Any]) -> None:
        self.manager = manager
        self.rows_per_call = len(actions[0])
        self._actions = itertools.cycle(actions)
        self._owed = 0

    def run(self, calls: int) -> None:
        """A call is done when that many envs have been stepped: which and how many come back at once differs."""
        manager = self.manager
        self._owed += calls * self.rows_per_call
        while self._owed > 0:
            actions = next(self._actions)
            ready = manager.ready_obs
            # By env id in DI-engine's managers, by position in their v2.
            by_id = isinstance(ready, dict)
            result = manager.step({one: actions[one] for one in ready} if by_id else actions[: len(ready)])
            self._owed -= len(result)

    def close(self) -> None:
        self.manager.close()
