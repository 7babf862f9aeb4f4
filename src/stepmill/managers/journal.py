"""What a manager is about to do, written down before: so that it is done once, whatever comes in between.

A signal handler may raise between any two instructions of Python code, Ctrl-C above all. Then the next call of the
manager finds here what the last one was at: whether an action was sent, what a batch meant, what was handed out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError
from stepmill.managers.rows import Place
from stepmill.managers.states import EnvState

__all__ = ["Handed", "News", "Sending"]


@dataclass(frozen=True, slots=True)
class Sending:
    """Actions, or resets with these seeds. They were sent if those envs are in flight."""

    ids: Sequence[int]
    seeds: Sequence[int | None] | None = None


@dataclass(slots=True)
class News:
    """What a batch means for the envs: what each thing is afterwards, not by how much it changes."""

    places: list[tuple[int, Place]]
    resets: list[int] = field(default_factory=list)  # that are done
    stepped: list[int] = field(default_factory=list)  # whose action is done, well or not
    arrived: dict[int, BaseEnvTimestep] = field(default_factory=dict)  # for a step to return
    failed: dict[int, EnvError] = field(default_factory=dict)  # for a step to raise
    states: dict[int, EnvState] = field(default_factory=dict)
    episodes: dict[int, int] = field(default_factory=dict)  # that have ended
    owed: list[int] = field(default_factory=list)  # to be reset
    failures: dict[int, int] = field(default_factory=dict)  # of resets, in a row
    due: dict[int, float] = field(default_factory=dict)  # when those are tried again
    given_up: EnvError | None = None  # a reset that failed for good
    lost_worker: bool = False


@dataclass(slots=True)
class Handed:
    """What a step is about to return, or to raise."""

    call: object
    timesteps: dict[int, BaseEnvTimestep]
    failed: dict[int, EnvError]
    error: EnvError | None
    is_lost: bool = False  # something else was raised instead
