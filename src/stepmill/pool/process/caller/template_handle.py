"""The caller's end of a template."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from stepmill.pool.process.caller.child_process import END_S, ask_for_process, ends, is_over, kill, resume
from stepmill.pool.process.caller.deadline import Deadline
from stepmill.pool.process.caller.server_handle import lease_server, return_server
from stepmill.pool.process.caller.streams import standard_streams
from stepmill.pool.process.stack import read_stack
from stepmill.pool.process.wire import Wire, close_all

__all__ = ["LoadError", "TemplateHandle"]


class TemplateHandle:
    """A template, forked by a server that lives as long as it is needed.

    What a ``silent`` one prints, and what its workers print, is held back until it may ``speak``.
    """

    def __init__(self, obituary: int, deadline: Deadline, *, silent: bool = False) -> None:
        self._is_loaded = False
        self._held_back: list[int] = []  # files in place of its stdout and stderr
        with contextlib.ExitStack() as undo:
            self._server = lease_server(deadline)
            undo.callback(return_server, self._server)
            self._wire, other = Wire.pair()
            undo.callback(self._wire.close)
            if silent:
                undo.callback(lambda: close_all(self._held_back))
                for name in ("stdout", "stderr"):
                    self._held_back.append(os.memfd_create(name))
            with contextlib.closing(other), standard_streams() as heard:
                stdout, stderr = self._held_back or heard
                fds = (other.fileno(), stdout, stderr, obituary)
                self.pid, self.pidfd = self._server.fork_template(fds, deadline)
            undo.callback(os.close, self.pidfd)
            undo.callback(kill, self.pidfd)
            self._dump_fd, self._dump_write = os.pipe2(os.O_CLOEXEC)
            undo.pop_all()

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked for workers."""
        return not is_over(self.pidfd)

    def load(self, packed: bytes, here: bool, deadline: Deadline) -> int:
        """Hands over the payload, to be read ``here`` or by each worker. Returns how many threads there are then."""
        self._wire.send(("payload", packed, here), [self._dump_write], deadline.left)
        (kind, answer), _ = deadline.receive(self._wire, self._resume)
        if kind == "failed":
            raise LoadError(answer)
        self._is_loaded = True
        return int(answer)

    def speak(self, deadline: Deadline) -> None:
        """Has it heard from now on, and its workers; what it has printed so far is shown first."""
        if not self._held_back:
            return
        with standard_streams() as heard:
            for held_back, stream in zip(self._held_back, heard, strict=True):
                _copy(held_back, stream)
            self._wire.send(("speak",), heard, deadline.left)
        close_all(self._held_back)
        self._held_back = []

    def fork_worker(
        self, kind: str, worker_id: int, incarnation: int, envs: tuple[int, int], fds: Sequence[int], deadline: Deadline
    ) -> tuple[int, int]:
        """A new "worker", or one for a "trial": its pid and pidfd. ``fds`` are its wire and the pipe for its stack."""
        return ask_for_process(self._wire, kind, (worker_id, incarnation, *envs), fds, deadline, self._resume)

    def _resume(self) -> None:
        resume(self.pid, self.pidfd)

    def stack(self) -> str:
        """Where it is, while it loads."""
        return read_stack(self.pidfd, self._dump_fd, self.pid)

    def end(self) -> None:
        """Kills it with all of its workers and what these spawned, and waits for that."""
        self._wire.hang_up()
        # Told so, it sees to the others itself; not while it runs code of the user.
        if not (self._is_loaded and ends(self.pid, self.pidfd)):
            kill(self.pidfd)
            is_over(self.pidfd, END_S)
        self.forget()
        return_server(self._server)

    def forget(self) -> None:
        """Lets go of it. All there is to do in a forked child, whose parent it belongs to."""
        self._wire.close()
        close_all((self.pidfd, self._dump_fd, self._dump_write, *self._held_back))


class LoadError(Exception):
    """The payload could not be read; ``description`` says why, see ``remote_error``."""

    def __init__(self, description: bytes) -> None:
        super().__init__()
        self.description = description


def _copy(file: int, stream: int) -> None:
    """Writes a whole file to a stream, as far as that takes it."""
    text = memoryview(os.pread(file, os.fstat(file).st_size, 0))
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(stream, text) :]
