"""What a manager knows of one env beside where it stands: what its resets carry, and how they go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepmill.managers.envs import Instructions
from stepmill.pool.host import Preparation

__all__ = ["ManagedEnv"]


@dataclass(slots=True)
class ManagedEnv:
    """One env. What the caller asked for outlives a launch; the rest belongs to this one."""

    seed: int | None = None
    dynamic_seed: bool | None = None
    replay_path: str | None = None

    is_seed_new: bool = False  # it goes with the next reset that somebody asks for
    is_instructed: bool = False  # the env knows of videos, and of how it is seeded
    params: dict[str, Any] = field(default_factory=dict)  # of its resets
    episodes: int = 0  # that ended
    renewals: int = 0

    # The reset under way.
    is_automatic: bool = False  # nobody asked for it
    carries_seed: bool = False
    failures: int = 0  # in a row

    def launched(self) -> ManagedEnv:
        """The same env in a new launch."""
        return ManagedEnv(self.seed, self.dynamic_seed, self.replay_path, is_seed_new=self.seed is not None)

    def seed_anew(self, seed: int, dynamic_seed: bool | None) -> None:
        """The caller gave it a seed; ``dynamic_seed`` None: as it was."""
        self.seed, self.is_seed_new, self.is_instructed = seed, True, False
        if dynamic_seed is not None:
            self.dynamic_seed = dynamic_seed

    def record_to(self, replay_path: str) -> None:
        """The caller wants videos there."""
        self.replay_path, self.is_instructed = replay_path, False

    def preparation(self, renew: bool) -> Preparation | None:
        """What comes before its next reset: building it anew; telling it what its configuration does not say."""
        if self.is_instructed and not renew:
            return None
        has_news = self.dynamic_seed is not None or self.replay_path is not None
        tell = Instructions(self.dynamic_seed, self.replay_path) if has_news else None
        return Preparation(renew, tell) if renew or has_news else None

    def seed_for_reset(self, renew: bool, automatic: bool) -> int | None:
        """A static seed goes with every reset, others once. An env built anew gets another: no episode is repeated."""
        is_due = self.is_seed_new and not automatic
        if self.seed is None or is_due or self.dynamic_seed is False:
            return self.seed
        if not renew:
            return None
        self.renewals += 1
        state = np.random.SeedSequence([self.seed, self.renewals]).generate_state(1, np.uint64)
        return int(state[0] >> np.uint64(1))

    def reset_is_sent(self, seed: int | None, automatic: bool) -> None:
        """A reset is under way, with that seed."""
        self.is_automatic = automatic
        self.is_instructed = True
        self.carries_seed = seed is not None
        if not automatic:
            self.is_seed_new = False

    def reset_has_ended(self, failures: int) -> None:
        """``failures``: in a row, 0 where it went well. Else nobody knows how much of it the env has taken in."""
        self.failures = failures
        if failures:
            self.is_instructed = False
            self.is_seed_new |= self.carries_seed
