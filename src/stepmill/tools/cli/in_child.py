"""Commands whose envs run in the command's own process: they work in a child, since an env can end its process."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from stepmill.system.guardian import die_with_parent
from stepmill.tools.cli import interrupts
from stepmill.tools.cli.program import ended
from stepmill.tools.cli.terminal import Terminal

__all__ = ["in_child"]

F = TypeVar("F", bound=Callable[..., Any])


def in_child(command: F) -> F:
    """Lets a command work in a child; if an env ends that, one line says so.

    The user's module is imported there too: before that, there is nothing that a fork could break.
    """

    @functools.wraps(command)
    def begin(*, target: str, terminal: Terminal, **options: Any) -> int:
        parent, (at_end, said) = os.getpid(), os.pipe()

        def work() -> None:
            die_with_parent(parent)
            interrupts.listen_to_parent()
            try:
                code = ended(lambda: command(target=target, terminal=terminal, **options))
            finally:
                os.write(said, b".")
            sys.exit(code)

        child = multiprocessing.get_context("fork").Process(target=work)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that numpy has threads: they know of forks
            child.start()
        _wait_for(cast(int, child.pid))
        child.join()
        os.close(said)
        with os.fdopen(at_end, "rb", buffering=0) as pipe, contextlib.suppress(BlockingIOError):
            os.set_blocking(at_end, False)  # another process of the env's may hold the other end
            if pipe.read(1):
                return cast(int, child.exitcode)
        interrupts.check()
        terminal.clear()
        raise click.ClickException(_what_happened(target, cast(int, child.exitcode)))

    return cast(F, begin)


def _wait_for(pid: int) -> None:
    """Waits until it ends, and passes on what ends a command."""
    while True:
        try:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return
        except KeyboardInterrupt:
            os.kill(pid, interrupts.FROM_PARENT)


def _what_happened(env: str, code: int) -> str:
    if code < 0:
        return f"the process of {env} was ended by {signal.Signals(-code).name}: it crashed, or somebody killed it"
    return f"{env} ended its process with exit code {code}: it calls os._exit, or something that it uses does"
