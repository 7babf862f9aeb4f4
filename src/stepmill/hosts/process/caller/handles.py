"""The caller's ends of a template and of its workers."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepmill.hosts.process.caller.child_process import (
    END_S,
    Deadline,
    ask,
    ask_for_process,
    ends,
    is_over,
    kill,
    resume,
)
from stepmill.hosts.process.caller.servers import lease_server, return_server
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.process.stack import read_stack
from stepmill.hosts.process.wire import UNANSWERED, Wire, close_all


class TemplateHandle:
    """A template, forked by a server that lives as long as it is needed.

    The output of a ``silent`` template and of its workers is held back until ``unmute``.
    """

    def __init__(
        self,
        obituary: int,
        deadline: Deadline,
        python: str | None,
        environ: Mapping[str, str],
        *,
        silent: bool = False,
    ) -> None:
        self.is_loaded = False
        self._held_back: list[int] = []  # files that replace its stdout and stderr
        with contextlib.ExitStack() as undo:
            self._server = lease_server(deadline, python, environ)
            undo.callback(return_server, self._server)
            self._server.wait_until_up(deadline)
            self._wire, other = Wire.pair()
            undo.callback(self._wire.close)
            if silent:
                undo.callback(lambda: close_all(self._held_back))
                for name in ("stdout", "stderr"):
                    self._held_back.append(os.memfd_create(name))
            with contextlib.closing(other), _standard_streams() as streams:
                stdout, stderr = self._held_back or streams
                fds = (other.fileno(), stdout, stderr, obituary)
                self.pid, self.pidfd = self._server.fork_template(fds, deadline)
            undo.callback(os.close, self.pidfd)
            undo.callback(kill, self.pidfd)
            self._dump_fd, self._dump_write = os.pipe2(os.O_CLOEXEC)
            undo.pop_all()

    @property
    def versions(self) -> tuple[str, str]:
        """The versions of its interpreter, see ``pickling.versions``."""
        return self._server.versions

    @property
    def is_alive(self) -> bool:
        """Whether it can fork workers."""
        return not is_over(self.pidfd)

    def begin_loading(self, packed: bytes, here: bool, deadline: Deadline) -> None:
        """Sends the payload, to be read ``here`` or by each worker."""
        self._wire.send(("payload", packed, here), [self._dump_write], deadline.left)

    def finish_loading(self, deadline: Deadline) -> tuple[int, bytes | None]:
        """Returns how many threads the template has, once it is loaded; and, from an island, what it has found out."""
        (kind, *answer), _ = deadline.receive(self._wire, self._resume)
        if kind == "failed":
            raise LoadError(*answer)
        self.is_loaded = True
        threads, found = answer
        return threads, found

    def unmute(self, deadline: Deadline) -> None:
        """Shows its output so far, and lets it and its workers print from now on."""
        if not self._held_back:
            return
        with _standard_streams() as streams:
            for held_back, stream in zip(self._held_back, streams, strict=True):
                _copy(held_back, stream)
            self._wire.send(("unmute",), streams, deadline.left)
        close_all(self._held_back)
        self._held_back = []

    def fork_worker(
        self, kind: str, worker_id: int, incarnation: int, envs: tuple[int, int], fds: Sequence[int], deadline: Deadline
    ) -> tuple[int, int]:
        """A new "worker", or one for a "trial" or a "description": its pid and pidfd.

        ``fds`` are its wire and the pipe for its stack.
        """
        return ask_for_process(self._wire, kind, (worker_id, incarnation, *envs), fds, deadline, self._resume)

    def hold(self, deadline: Deadline) -> None:
        """From now on, processes that its workers and clones fork for it are not strays."""
        self._wire.send(("hold",), timeout=deadline.left)

    def adopt(self, newcomers: Sequence[tuple[int, int, int]], deadline: Deadline, sure: bool) -> None:
        """Ends ``hold``: it watches these, (pid, worker id, incarnation or ``CLONE``), and kills all others.

        ``sure`` waits until it does.
        """
        if not sure:
            self._wire.send(("adopt", UNANSWERED, newcomers), timeout=deadline.left)
            return
        kind, answer, _ = ask(self._wire, "adopt", (newcomers,), (), deadline, self._resume)
        if kind == "refused":
            raise rebuild(answer)

    def _resume(self) -> None:
        resume(self.pid, self.pidfd)

    def stack(self) -> str:
        """Its Python stack, while it loads."""
        return read_stack(self.pidfd, self._dump_fd, self.pid)

    def end(self) -> None:
        """Kills the template, its workers and what they spawned, and waits until they are gone."""
        self._wire.hang_up()
        # When it is told to end, it ends its workers itself; but not while it runs the user's code.
        if not (self.is_loaded and ends(self.pid, self.pidfd)):
            kill(self.pidfd)
            is_over(self.pidfd, END_S)
        self.forget()
        return_server(self._server)

    def forget(self) -> None:
        """Closes the descriptors. In a forked child that is all: the template belongs to the parent."""
        self._wire.close()
        close_all((self.pidfd, self._dump_fd, self._dump_write, *self._held_back))


class LoadError(Exception):
    """The payload could not be read; ``description`` says why, see ``remote_error``, and ``phase`` is a worker's."""

    def __init__(self, phase: str, description: bytes) -> None:
        super().__init__()
        self.phase = phase
        self.description = description


def _copy(file: int, stream: int) -> None:
    """Writes a whole file to a stream, until the stream fails."""
    text = memoryview(os.pread(file, os.fstat(file).st_size, 0))
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(stream, text) :]


# ---- where it prints to --------------------------------------------------------------------------


@contextlib.contextmanager
def _standard_streams() -> Iterator[tuple[int, int]]:
    """Descriptors of stdout and stderr: those of the streams, else 1 and 2, else the null device."""
    with contextlib.ExitStack() as opened:
        yield _stream_fd(sys.stdout, 1, opened), _stream_fd(sys.stderr, 2, opened)


def _stream_fd(stream: Any, default: int, opened: contextlib.ExitStack) -> int:
    for find in (lambda: stream.fileno(), lambda: default):
        with contextlib.suppress(Exception):  # the stream of a notebook or a test may do anything
            fd: int = find()
            os.fstat(fd)
            return fd
    fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    opened.callback(os.close, fd)
    return fd


# ---- the caller's end of a worker ----------------------------------------------------------------


@dataclass
class WorkerHandle:
    """A worker process and the caller's ends of it. Its stack can be read from ``dump_fd``."""

    worker_id: int
    incarnation: int
    envs: tuple[int, int]
    wire: Wire
    pidfd: int
    pid: int
    dump_fd: int
    template: int  # the pid of the process that forked it; the worker dies with it
    ready_payload: bytes | None = None
    is_ready: bool = False
    is_closed: bool = field(default=False, repr=False)

    def stack(self) -> str:
        """The Python stack of the worker; takes at most half a second."""
        return read_stack(self.pidfd, self.dump_fd, self.pid)

    def close(self) -> None:
        """Closes the descriptors. Does not end the process."""
        if not self.is_closed:
            self.is_closed = True
            self.wire.close()
            close_all((self.pidfd, self.dump_fd))
