"""A signal handler that raises while a call waits inside a pool."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from support.envs.faulty import Gate
from support.probes import in_thread, wait_until_inside


class Struck(Exception):
    """What a signal handler raised."""


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Python drops what a handler raises inside a finalizer, and a collection may run those of earlier tests."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def struck_inside(pool: Any, gate: Gate | None = None) -> Iterator[None]:
    """The block has to wait inside the pool, until a signal handler raises there: as Ctrl-C does.

    With a ``gate``, not before an env has come to it: a call is under way only then.
    """

    def strike() -> None:
        if gate is not None:
            gate.wait()
        wait_until_inside(pool)
        os.kill(os.getpid(), signal.SIGUSR1)

    def handle(*_: object) -> None:
        raise Struck

    old = signal.signal(signal.SIGUSR1, handle)
    thread = in_thread(strike)
    try:
        with pytest.raises(Struck), no_garbage_collection():
            yield
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, old)
