"""What a manager knows about one env besides where it stands: its seed, its resets, its episodes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from stepmill.envs.base_env import SEED_BITS
from stepmill.errors import StateError, summary
from stepmill.hosts.python_states import dumps
from stepmill.managers.env_side import EnvInstructions
from stepmill.managers.states import SavedEnv, Standing

# What a saved state has of an env.
_SAVED = tuple(one.name for one in fields(SavedEnv) if one.name != "standing")


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
    sampler: Any = None  # an action space that random actions are drawn from, if the env has no way of its own
    saved_standing: Standing = Standing.READY  # of the last state that it was given

    # The reset under way.
    is_automatic: bool = False  # the caller did not ask for it
    carries_seed: bool = False
    failures: int = 0  # in a row

    def relaunched(self) -> ManagedEnv:
        """The same env in a new launch."""
        is_seed_new = self.seed is not None
        return ManagedEnv(self.seed, self.dynamic_seed, self.replay_path, is_seed_new=is_seed_new, sampler=self.sampler)

    def set_seed(self, seed: int, dynamic_seed: bool | None) -> None:
        """The caller gave it a seed; ``dynamic_seed`` None leaves that as it was."""
        self.seed, self.is_seed_new, self.is_instructed, self.sampler = seed, True, False, None
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

    # ---- saved states ------------------------------------------------------------------------

    def save(self, env_id: int, standing: Standing) -> bytes:
        """What belongs to the saved state of this env, which stands there. Videos do not."""
        try:
            return dumps((standing.name, *(getattr(self, name) for name in _SAVED)))
        except Exception as error:
            raise StateError(
                f"save: the reset parameters of env {env_id} cannot be pickled: {summary(error)}"
            ) from error

    def note_restored(self, saved: SavedEnv) -> None:
        """It was given that state."""
        for name in _SAVED:
            setattr(self, name, getattr(saved, name))
        self.saved_standing = saved.standing
        self.is_instructed &= self.replay_path is None  # the saved env may have known of no videos

    # ---- resets ------------------------------------------------------------------------------

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


def read_saved(env_id: int, note: bytes) -> SavedEnv:
    """What ``ManagedEnv.save`` has returned. Changes nothing."""
    try:
        standing, *others = pickle.loads(note)
        return SavedEnv(Standing[standing], *others)
    except Exception as error:
        raise StateError(f"restore: the state for env {env_id} cannot be read here: {summary(error)}") from error
