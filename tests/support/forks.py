"""Forked children, in programs that tests run."""

from __future__ import annotations

import os
from collections.abc import Callable


def child(body: Callable[[], object]) -> int:
    """Runs ``body`` in a forked child and returns its pid. Its exit code is 0 where that went well."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            body()
            code = 0
        finally:
            os._exit(code)
    return pid


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def went_well(pid: int) -> bool:
    return exit_code(pid) == 0
