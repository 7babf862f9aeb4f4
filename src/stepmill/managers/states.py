"""Where an env of a manager stands, as users see it and in the finer steps that the manager needs; and the moves.

::

    VOID ──launch──► INIT ──► RESET ──► RUN ──end──► RESET        auto_reset
     ▲                          ▲        │     └────► NEED_RESET  without it, until reset({id: ...})
     │                          │        │     └────► DONE        its episode_num is reached
     └──close── any             └─reset──┴─failure──► ERROR       until reset({id: ...})

Inside RUN and RESET::

    READY ──step──► STEPPING ──► READY               ENDED ──► RESETTING ──► READY
                        ├──end──► ENDED, DONE, …                  ▲   └─failure──► RETRYING ──┐
                        └─reset─► DROPPED ──► FAILED              └─────retry_waiting_time────┘

    READY, NEEDS_RESET, DONE, FAILED ──restore──► RESTORING ──► where the saved env stood
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError
from stepmill.managers.env_rows import StoredObs


class EnvState(Enum):
    """The state of one env."""

    VOID = 0
    INIT = 1
    RUN = 2
    RESET = 3
    DONE = 4
    ERROR = 5
    NEED_RESET = 6


class Standing(Enum):
    """Where one env stands, and the state that users see."""

    UNBUILT = 0, EnvState.VOID
    BUILT = 1, EnvState.INIT  # never reset yet
    READY = 2, EnvState.RUN  # takes an action once the caller has its last result
    STEPPING = 3, EnvState.RUN  # an action is in flight
    DROPPED = 4, EnvState.ERROR  # an action is in flight whose result is thrown away
    ENDED = 5, EnvState.RESET  # its reset has not been sent yet
    RESETTING = 6, EnvState.RESET  # a reset is in flight
    RETRYING = 7, EnvState.RESET  # its reset failed and will be tried again
    NEEDS_RESET = 8, EnvState.NEED_RESET  # ended; the caller has to reset it
    DONE = 9, EnvState.DONE
    FAILED = 10, EnvState.ERROR
    RESTORING = 11, EnvState.RESET  # it was given a saved state, and what the saved env showed is in flight

    def __init__(self, _: int, state: EnvState) -> None:
        self.state = state


# ---- moves ---------------------------------------------------------------------------------------
# What takes envs from one standing to another, written down before it is done. A signal handler may raise between any
# two instructions of Python code, Ctrl-C above all. Then the next call of the manager finds here what the last one was
# doing, and does it again: each move says what things are afterwards, not by how much they change, so making it twice
# is the same as making it once.


@dataclass(frozen=True, slots=True)
class SavedEnv:
    """What a saved state says of an env besides what the pool knows: where it stood, and how it will be reset."""

    standing: Standing
    seed: int | None
    dynamic_seed: bool | None
    is_seed_new: bool
    is_instructed: bool
    params: dict[str, Any]
    episodes: int
    renewals: int
    sampler: Any


@dataclass(frozen=True, slots=True)
class SentResets:
    """What a ``Sending`` of resets adds, with one seed per env."""

    seeds: Sequence[int | None]
    automatic: bool  # the caller did not ask for them; if it did, unreturned results of the last episode are dropped
    params: Mapping[int, Mapping[str, Any]]  # the new ones
    episodes: Mapping[int, int]  # how many have ended, without those whose end the caller never saw


@dataclass(frozen=True, slots=True)
class Sending:
    """Actions, resets or saved states are being sent. They were sent if the pool has these envs in flight."""

    ids: Sequence[int]
    resets: SentResets | None = None
    saved: Sequence[SavedEnv] | None = None  # one per env


@dataclass(slots=True)
class Arrival:
    """A batch has come: what it means for its envs."""

    ids: Sequence[int]
    stored_obs: Sequence[StoredObs]  # their observations
    standings: dict[int, Standing] = field(default_factory=dict)  # of the envs that are not READY now
    timesteps: dict[int, BaseEnvTimestep] = field(default_factory=dict)  # for `step` to return
    errors: dict[int, EnvError] = field(default_factory=dict)  # for `step` to raise
    episodes: dict[int, int] = field(default_factory=dict)  # how many have ended
    failures: dict[int, int] = field(default_factory=dict)  # in a row, of resets that came back; 0: it succeeded
    retry_at: dict[int, float] = field(default_factory=dict)  # when resets that failed are tried again
    fatal: EnvError | None = None  # of a reset that failed for good: the manager is to be closed
    has_ended: bool = False  # some of the envs are ENDED
    lost_worker: bool = False


@dataclass(slots=True)
class Handover:
    """What ``step`` is about to return or raise. It is the one move that is undone, if the caller did not get it."""

    call: object
    timesteps: dict[int, BaseEnvTimestep]
    errors: dict[int, EnvError]
    error: EnvError | None
    is_lost: bool = False  # something else was raised instead
