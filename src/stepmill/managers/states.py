"""Where an env of a manager stands: as users see it, and in the finer steps that the manager needs.

::

    VOID ──launch──► INIT ──► RESET ──► RUN ──end──► RESET        auto_reset
     ▲                          ▲        │     └────► NEED_RESET  without it, until reset({id: ...})
     │                          │        │     └────► DONE        its episode_num is reached
     └──close── any             └─reset──┴─failure──► ERROR       until reset({id: ...})

Inside RUN and RESET::

    READY ──step──► STEPPING ──► READY               ENDED ──► RESETTING ──► READY
                        ├──end──► ENDED, DONE, …                  ▲   └─failure──► RETRYING ──┐
                        └─reset─► DROPPED ──► FAILED              └─────retry_waiting_time────┘
"""

from __future__ import annotations

from enum import Enum


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

    def __init__(self, _: int, state: EnvState) -> None:
        self.state = state
