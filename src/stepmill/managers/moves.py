"""What moves envs from one standing to another, written down before it is done.

A signal handler may raise between any two instructions of Python code, Ctrl-C above all. Then the next call of the
manager finds here what the last one was doing, and does it again: each move says what things are afterwards, not by how
much they change, so that to make it twice is to make it once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError
from stepmill.managers.rows import Place
from stepmill.managers.states import Standing

__all__ = ["Arrival", "Handover", "Sending", "SentResets"]


@dataclass(frozen=True, slots=True)
class SentResets:
    """What is sent where it is resets. They have one seed per env."""

    seeds: Sequence[int | None]
    automatic: bool  # nobody asked for them; else what is left of the episode before is void
    params: Mapping[int, Mapping[str, Any]]  # that are new
    episodes: Mapping[int, int]  # that ended, without those of which nobody saw the end


@dataclass(frozen=True, slots=True)
class Sending:
    """Actions or resets. They were sent if the pool has these envs in flight."""

    ids: Sequence[int]
    resets: SentResets | None = None


@dataclass(slots=True)
class Arrival:
    """What a batch means for its envs."""

    ids: Sequence[int]
    places: Sequence[Place]  # of their observations
    standings: dict[int, Standing] = field(default_factory=dict)  # of those that are not READY now
    timesteps: dict[int, BaseEnvTimestep] = field(default_factory=dict)  # for a step to return
    errors: dict[int, EnvError] = field(default_factory=dict)  # for a step to raise
    episodes: dict[int, int] = field(default_factory=dict)  # that have ended
    failures: dict[int, int] = field(default_factory=dict)  # of resets that ended, in a row; 0: it went well
    due: dict[int, float] = field(default_factory=dict)  # when those that failed are tried again
    given_up: EnvError | None = None  # a reset that failed for good
    has_ended: bool = False  # some of them are ENDED
    lost_worker: bool = False


@dataclass(slots=True)
class Handover:
    """What a step is about to return, or to raise. The one move that is undone where the caller did not get it."""

    call: object
    timesteps: dict[int, BaseEnvTimestep]
    errors: dict[int, EnvError]
    error: EnvError | None
    is_lost: bool = False  # something else was raised instead
