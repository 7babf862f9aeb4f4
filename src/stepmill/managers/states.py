"""Where each env of a manager stands.

::

    VOID ──launch──► INIT ──► RESET ──► RUN ──end──► RESET        auto_reset
     ▲                          ▲        │     └────► NEED_RESET  without it, until reset({id: ...})
     │                          │        │     └────► DONE        its episode_num is reached
     └──close── any             └─reset──┴─failure──► ERROR       until reset({id: ...})
"""

from __future__ import annotations

from enum import Enum

__all__ = ["EnvState"]


class EnvState(Enum):
    """The state of one env."""

    VOID = 0
    INIT = 1
    RUN = 2
    RESET = 3
    DONE = 4
    ERROR = 5
    NEED_RESET = 6
