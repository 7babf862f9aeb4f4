"""States by fork: a worker forks a clone of itself, which sleeps; and the clone forks workers, as often as it is woken.

A clone touches no memory that is shared with the pool. It has a wire of its own, to the caller, and ends when that is
closed. Its parent is the template, as that of all workers is: it ends with that too, and outlives the worker.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Collection
from typing import Any, NoReturn

from stepmill import _native
from stepmill.errors import StateError
from stepmill.hosts.process.forked.unforkable import Identity, check_forkable
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.process.stack import answer_with_stack, stop_answering
from stepmill.hosts.process.wire import DescriptorsLost, Wire, WireClosed, close_all, out_of_reach
from stepmill.system.guardian import become_subreaper, die_with_parent, flush_streams, remember_own_pid

_WIRE_S = 10.0  # the caller has sent it before it asked


class Awakening(BaseException):
    """Raised in a process that a clone has forked, so that it leaves everything that the clone was doing.

    Attributes:
        post: Worker id, first env and attachment of the worker that it is now.
        fds: The arena, its outbox, and what it rings for rows.
    """

    def __init__(self, post: tuple[int, int, dict[str, Any]], fds: list[int]) -> None:
        super().__init__()
        self.post, self.fds = post, fds


class ForkedProcess:
    """The process of a worker, or what a fork of it has to know: its wire, where it writes its stack, its template."""

    _is_frozen = False
    _rows_event = -1

    def __init__(self, wire: Wire, dump_fd: int, template: int) -> None:
        self._wire, self._dump_fd, self._template = wire, dump_fd, template

    def take_rows_event(self, fd: int) -> int:
        """Keeps the descriptor that wakes a caller in an event loop, out of the env's reach; closes a former one."""
        former, self._rows_event = self._rows_event, out_of_reach(fd)
        if former >= 0:
            os.close(former)
        return self._rows_event

    def clone(self, own_mappings: Collection[Identity], call: int) -> int:
        """Forks a clone, for which the caller has sent a wire, with the number of this call, and returns its pid.

        Raises:
            StateError: This process has something that a fork does not copy.
            Awakening: This is another process, which continues where this one is now.
        """
        fd = self._receive_wire(call)
        try:
            check_forkable({self._wire.fileno(), self._dump_fd, self._rows_event, fd}, own_mappings)
            flush_streams()  # or each copy would print it again
            self._freeze()
            drawn = random.getstate()  # a forked process has its own
            pid = _native.fork_aside()
            if pid == 0:
                self._sleep(fd, drawn)
            return pid
        finally:
            os.close(fd)

    def _receive_wire(self, call: int) -> int:
        try:
            while True:
                (_, number), (fd,) = self._wire.recv(_WIRE_S)
                if number == call:
                    return fd
                os.close(fd)  # that of a call that was interrupted
        except DescriptorsLost as error:
            raise StateError(f"its process has no descriptor left: {error}") from None
        except WireClosed as error:  # the env has closed it
            raise StateError(f"its process cannot be reached: {error}") from None

    def _freeze(self) -> None:
        """Takes all objects out of the garbage collector's reach, which would write to, and so copy, their pages.

        Once is enough: what comes later is little, and what is frozen is never collected.
        """
        if not self._is_frozen:
            gc.collect()
            gc.freeze()
            self._is_frozen = True

    # ---- in the clone ------------------------------------------------------------------------

    def _sleep(self, fd: int, drawn: Any) -> NoReturn:
        try:
            self._settle(fd)
            post, fds = self._wait_for_call()
            random.setstate(drawn)
            self._wake(post, fds)
        except Awakening:
            raise
        except BaseException:
            os._exit(1)

    def _settle(self, fd: int) -> None:
        self._stand_alone()
        stop_answering()
        os.close(self._dump_fd)
        self._wire.replace(out_of_reach(os.dup(fd)))

    def _wait_for_call(self) -> tuple[Any, list[int]]:
        """Returns in a process that was forked because the caller wants one, with what that is told and given."""
        while True:
            fds: list[int] = []
            try:
                (_, *post), fds = self._wire.recv()
                if _native.fork_aside() == 0:
                    return post, fds
            except WireClosed:  # nobody has this state any more
                os._exit(0)
            except OSError as error:  # no more processes, memory or descriptors
                self._wire.send(("refused", describe(error)))
            close_all(fds)

    def _stand_alone(self) -> None:
        os.setsid()
        die_with_parent(self._template)
        remember_own_pid()

    # ---- in what the clone has forked --------------------------------------------------------

    def _wake(self, post: Any, fds: list[int]) -> NoReturn:
        self._stand_alone()
        become_subreaper()
        wire, dump, *memory = fds
        self._wire.replace(out_of_reach(wire))
        self._dump_fd = out_of_reach(dump)
        answer_with_stack(self._dump_fd)
        raise Awakening(post, memory)

    def wait_to_serve(self) -> None:
        """Tells the caller that the new worker is ready, and returns when it is to begin."""
        pidfd = os.pidfd_open(os.getpid())
        try:
            self._wire.send(("ready", os.getpid()), [pidfd])
            self._wire.recv()
        except WireClosed:
            os._exit(0)  # without closing its env, which is a copy
        finally:
            os.close(pidfd)
