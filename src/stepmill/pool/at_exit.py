"""The end of the program, with pools still open and perhaps in use."""

from __future__ import annotations

import atexit
import weakref
from contextlib import ExitStack, suppress

from stepmill import _native
from stepmill.errors import ConcurrentUseError

__all__ = ["close_at_exit"]

# Engines, not views: one may outlive its view, where somebody kept a method of it.
_engines: weakref.WeakSet[_native.Engine] = weakref.WeakSet()
_LEAVING_S = 1.0  # what a daemon thread has to come out of an env's step; where it only waits for one, it comes at once


def close_at_exit(engine: _native.Engine) -> None:
    """Has a pool closed when the program ends, if it is still there."""
    _engines.add(engine)


@atexit.register
def _close_open_pools() -> None:
    """Ends threads while the interpreter is still whole: of every pool, whatever one of them raises."""
    _native.begin_exit()
    with ExitStack() as stack:
        for engine in list(_engines):
            stack.callback(_close, engine)


def _close(engine: _native.Engine) -> None:
    engine.wait_until_left(_LEAVING_S)
    with suppress(ConcurrentUseError):  # a daemon thread is in an env: both end with this process, and so do workers
        engine.close()
