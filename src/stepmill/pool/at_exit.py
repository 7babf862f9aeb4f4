"""The end of the program, with pools still open and perhaps in use."""

from __future__ import annotations

import atexit
import weakref
from contextlib import ExitStack, suppress
from typing import Any

from stepmill import _native
from stepmill.errors import ConcurrentUseError

__all__ = ["close_at_exit"]

# Engines, not views: one may outlive its view, where somebody kept a method of it.
_open_cores: weakref.WeakSet[Any] = weakref.WeakSet()
_LEAVING_S = 1.0  # what a daemon thread has to come out of an env's step; where it only waits for one, it comes at once


def close_at_exit(core: Any) -> None:
    """Has a pool closed when the program ends, if it is still there."""
    _open_cores.add(core)


@atexit.register
def _close_open_pools() -> None:
    """Ends threads while the interpreter is still whole: of every pool, whatever one of them raises."""
    _native.begin_exit()
    with ExitStack() as stack:
        for core in list(_open_cores):
            stack.callback(_close, core)


def _close(core: Any) -> None:
    core.wait_until_left(_LEAVING_S)
    with suppress(ConcurrentUseError):  # a daemon thread is in an env: both end with this process, and so do workers
        core.close()
