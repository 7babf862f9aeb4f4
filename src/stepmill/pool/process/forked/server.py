"""The base server: a process with nothing but our own libraries in it, from which templates are forked.

One for each calling process, started by exec, so that no thread, lock or CUDA context of the caller is in it. It
ends, and everything that came from it with it, when the caller closes the wire or is gone.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from functools import partial

# Here for the templates to find them loaded.
import cloudpickle  # noqa: F401
import gymnasium  # noqa: F401
import numpy as np  # noqa: F401

from stepmill.pool.process.forked import template
from stepmill.pool.process.forked.guardian import Guardian, Task, become_subreaper
from stepmill.pool.process.obituary import OBITUARY
from stepmill.pool.process.remote_error import describe
from stepmill.pool.process.stack import DUMP_SIGNAL
from stepmill.pool.process.wire import DescriptorsLost, Wire, WireClosed, close_all

__all__ = ["main"]


def main(wire_fd: int, caller: int) -> None:
    """Runs the server. ``caller`` is the pid of the process that started it."""
    wire = Wire(wire_fd)
    caller_pidfd = _pidfd_of_parent(caller)
    _set_signals()
    become_subreaper()
    gc.collect()
    gc.freeze()  # a collection in a child would write to, and so copy, the pages of everything imported here
    task = BaseServer(wire, caller_pidfd).run()
    task()


def _pidfd_of_parent(parent: int) -> int:
    try:
        pidfd = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    if os.getppid() != parent:  # it died, and another process may have its number
        os._exit(1)
    return pidfd


def _set_signals() -> None:
    """The caller may have changed what a program inherits; a Ctrl-C is the caller's to handle."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(DUMP_SIGNAL, signal.SIG_IGN)  # until there is somebody to answer it


class BaseServer:
    def __init__(self, wire: Wire, caller_pidfd: int) -> None:
        self._wire = wire
        self._caller_pidfd = caller_pidfd
        self._guardian = Guardian()
        self._guardian.watch(wire, self._serve)
        self._guardian.watch(caller_pidfd, self._end)

    def run(self) -> Task:
        """Serves; returns only in a forked template, with what it has to do."""
        with contextlib.suppress(WireClosed):
            self._wire.send(("up",))
        return self._guardian.run()

    def _serve(self) -> Task | None:
        try:
            (_, serial), fds = self._wire.recv()
        except WireClosed:
            return self._end()
        except DescriptorsLost as lost:
            with contextlib.suppress(WireClosed):
                self._wire.send(("refused", lost.message[1], describe(OSError(*lost.args))))
            return None
        wire_fd, stdout, stderr, obituary = fds
        server, pidfds = os.getpid(), []
        try:
            pid = self._guardian.fork()
            if pid == 0:
                self._wire.close()
                os.close(self._caller_pidfd)
                return partial(template.main, Wire(wire_fd), stdout, stderr, obituary, server)
            pidfds = [self._guardian.keep(pid, partial(self._bury, pid, obituary))]
            reply: tuple[object, ...] = ("template", serial, pid)
            close_all((wire_fd, stdout, stderr))
        except OSError as error:  # no more processes or descriptors are allowed
            reply = ("refused", serial, describe(error))
            close_all(fds)
        with contextlib.suppress(WireClosed):  # the loop will see that
            self._wire.send(reply, pidfds)
        return None

    def _bury(self, pid: int, obituary: int, status: int) -> None:
        """Tells the pool that its template ended: nobody is left to write obituaries of its workers."""
        with contextlib.suppress(OSError):
            os.write(obituary, OBITUARY.pack(-1, pid, status))
        os.close(obituary)

    def _end(self) -> Task:
        self._guardian.end()
        os._exit(0)
