"""What the kernel does for parents and children, on either side of a fork (``prctl``)."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Makes this process the parent of every orphan among its descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when the parent dies; ends it now if the parent is already dead."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undoes ``die_with_parent``."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
