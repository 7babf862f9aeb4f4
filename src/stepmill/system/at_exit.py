"""Closes the pools that are still open, and perhaps in use, when the program ends."""

from __future__ import annotations

import atexit
import weakref
from contextlib import ExitStack, suppress

from stepmill import _native
from stepmill.errors import ConcurrentUseError

# Engines, not views: an engine outlives its view if the user kept one of its methods.
_engines: weakref.WeakSet[_native.Engine] = weakref.WeakSet()
_LEAVING_S = 1.0  # how long a daemon thread may take to leave an env's step; one that only waits leaves at once


def close_at_exit(engine: _native.Engine) -> None:
    """Closes the pool when the program ends, if it still exists."""
    _engines.add(engine)


@atexit.register
def _close_open_pools() -> None:
    """Ends the threads of every pool while the interpreter is still intact, even if closing one pool raises."""
    _native.begin_exit()
    with ExitStack() as stack:
        for engine in list(_engines):
            stack.callback(_close, engine)


def _close(engine: _native.Engine) -> None:
    engine.wait_until_left(_LEAVING_S)
    with suppress(ConcurrentUseError):  # a daemon thread is in an env: it ends with this process, and so do workers
        engine.close()
