"""The base server: a process that has loaded only our own libraries, and forks templates.

It is started by exec, so that it has no thread, lock or CUDA context of the caller. When the caller closes the wire or
is gone, the server ends with all its descendants. When no pool needs it, the caller lets it rest: it ends after some
time, unless it is called back before.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
from functools import partial

# Imported here so that templates have them loaded.
import cloudpickle  # noqa: F401
import gymnasium  # noqa: F401
import numpy as np  # noqa: F401

from stepmill.hosts.process import outgoing
from stepmill.hosts.process.forked import template
from stepmill.hosts.process.pickling import versions
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.process.stack import DUMP_SIGNAL
from stepmill.hosts.process.wire import OBITUARY, DescriptorsLost, Wire, WireClosed, close_all
from stepmill.system.guardian import Guardian, Task, become_subreaper
from stepmill.system.interpreters import build_mark


def main(wire_fd: int, caller_pidfd: int, is_island: bool = False) -> None:
    """Runs the server. Both descriptors are inherited: its wire, and one of the process that started it."""
    if is_island:
        outgoing.set_island()
    wire = Wire(wire_fd)
    os.set_inheritable(caller_pidfd, False)
    _set_signals()
    become_subreaper()
    os.chdir("/")  # it may be there for longer than the folder should
    gc.collect()
    gc.enable()  # it was off for the imports
    gc.freeze()  # otherwise a collection in a child would write to, and so copy, the pages of all modules
    task = BaseServer(wire, caller_pidfd).run()
    task()


def _set_signals() -> None:
    """Resets what the caller may have changed for its children. The caller handles Ctrl-C, so we ignore it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(DUMP_SIGNAL, signal.SIG_IGN)  # until a forked process answers it


class BaseServer:
    def __init__(self, wire: Wire, caller_pidfd: int) -> None:
        self._wire = wire
        self._caller_pidfd = caller_pidfd
        self._obituaries: set[int] = set()  # the pipes of all pools
        self._guardian = Guardian()
        self._guardian.watch(wire, self._serve)
        self._guardian.watch(caller_pidfd, self._end)

    def run(self) -> Task:
        """Serves. Returns only in a forked template, with its task."""
        with contextlib.suppress(WireClosed):
            self._wire.send(("up", build_mark() if outgoing.is_island() else {}, versions()))
        return self._guardian.run()

    def _serve(self) -> Task | None:
        try:
            (kind, serial, *about), fds = self._wire.recv()
        except WireClosed:
            return self._end()
        except DescriptorsLost as lost:
            with contextlib.suppress(WireClosed):
                self._wire.send(("refused", lost.message[1], describe(OSError(*lost.args))))
            return None
        self._guardian.limit_wait(about[0] if about else None, self._end)
        if kind == "template":
            return self._fork_template(serial, fds)
        self._rest_or_wake(kind, serial)
        return None

    def _rest_or_wake(self, kind: str, serial: int) -> None:
        """The caller waits for the answer: once it has it, no other process is left, or this one stays."""
        if kind == "rest":
            self._guardian.end()
        with contextlib.suppress(WireClosed):  # the loop will notice
            self._wire.send((kind, serial, None))

    def _fork_template(self, serial: int, fds: list[int]) -> Task | None:
        wire_fd, stdout, stderr, obituary = fds
        server, pidfds = os.getpid(), []
        try:
            pid = self._guardian.fork()
            if pid == 0:
                self._wire.close()
                close_all((self._caller_pidfd, *self._obituaries))
                return partial(template.main, Wire(wire_fd), stdout, stderr, obituary, server)
            pidfds = [self._guardian.keep(pid, partial(self._report_exit, pid, obituary))]
            self._obituaries.add(obituary)
            reply: tuple[object, ...] = ("template", serial, pid)
            close_all((wire_fd, stdout, stderr))
        except OSError as error:  # no more processes or descriptors are allowed
            reply = ("refused", serial, describe(error))
            close_all(fds)
        with contextlib.suppress(WireClosed):  # the loop will notice
            self._wire.send(reply, pidfds)
        return None

    def _report_exit(self, pid: int, obituary: int, status: int) -> None:
        """Tells the pool that its template has ended, and can no longer write obituaries of its workers."""
        with contextlib.suppress(OSError):
            os.write(obituary, OBITUARY.pack(-1, pid, status))
        self._obituaries.discard(obituary)
        os.close(obituary)

    def _end(self) -> Task:
        self._guardian.end()
        os._exit(0)
