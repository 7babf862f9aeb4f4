"""What a manager knows about one env besides where it stands: its seed, its resets, its episodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepmill.envs.base_env import SEED_BITS
from stepmill.managers.env_side import EnvInstructions


@dataclass(slots=True)
class ManagedEnv:
    """One env of a manager. What the caller asked for outlives a launch; the rest belongs to one launch."""

    seed: int | None = None
    dynamic_seed: bool | None = None
    replay_path: str | None = None

    is_seed_new: bool = False  # it goes with the next reset that the caller asks for
    is_instructed: bool = False  # the env knows whether to write videos, and how it is seeded
    params: dict[str, Any] = field(default_factory=dict)  # keyword arguments of its resets
    episodes: int = 0  # how many have ended
    renewals: int = 0  # how often it was built anew

    # The reset under way.
    is_automatic: bool = False  # the caller did not ask for it
    carries_seed: bool = False
    failures: int = 0  # in a row

    def relaunched(self) -> ManagedEnv:
        """The same env in a new launch."""
        return ManagedEnv(self.seed, self.dynamic_seed, self.replay_path, is_seed_new=self.seed is not None)

    def set_seed(self, seed: int, dynamic_seed: bool | None) -> None:
        """The caller gave it a seed; ``dynamic_seed`` None leaves that as it was."""
        self.seed, self.is_seed_new, self.is_instructed = seed, True, False
        if dynamic_seed is not None:
            self.dynamic_seed = dynamic_seed

    def record_to(self, replay_path: str) -> None:
        """The caller wants videos there."""
        self.replay_path, self.is_instructed = replay_path, False

    def instructions(self, renew: bool) -> EnvInstructions | None:
        """What it has to be told before its next reset; ``renew``: it is built anew for that."""
        if self.is_instructed and not renew:
            return None
        told = EnvInstructions(self.seed is not None, self.dynamic_seed, self.replay_path)
        return None if told == EnvInstructions() else told

    def seed_for_reset(self, renew: bool, automatic: bool) -> int | None:
        """A static seed goes with every reset, others once. An env built anew gets another one: no episode repeats."""
        is_due = self.is_seed_new and not automatic
        if self.seed is None or is_due or self.dynamic_seed is False:
            return self.seed
        if not renew:
            return None
        self.renewals += 1
        state = np.random.SeedSequence([self.seed, self.renewals]).generate_state(1)
        return int(state[0]) >> (32 - SEED_BITS)

    def note_reset_sent(self, seed: int | None, automatic: bool) -> None:
        """A reset with that seed is under way."""
        self.is_automatic = automatic
        self.is_instructed = True
        self.carries_seed = seed is not None
        if not automatic:
            self.is_seed_new = False

    def note_reset_result(self, failures: int) -> None:
        """``failures``: in a row, 0 if it succeeded. If not, how much of it reached the env is unknown."""
        self.failures = failures
        if failures:
            self.is_instructed = False
            self.is_seed_new |= self.carries_seed
