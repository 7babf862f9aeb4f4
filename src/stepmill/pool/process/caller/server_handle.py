"""The caller's end of the base server: one for the whole process, leased by its pools."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np

from stepmill.errors import StepmillError, UnsupportedError
from stepmill.pool.process.caller.child_process import ask_for_process, ends, is_over, kill, resume
from stepmill.pool.process.caller.deadline import Deadline
from stepmill.pool.process.caller.streams import standard_streams
from stepmill.pool.process.payload import one_thread_each
from stepmill.pool.process.wire import Wire, WireClosed

__all__ = ["lease_server", "return_server"]

_ROOT = str(Path(__file__).parents[4])  # the folder that holds the package
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from stepmill.pool.process.forked.server import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


class ServerHandle:
    """The base server, started by exec."""

    def __init__(self, deadline: Deadline) -> None:
        self.users = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()
        if not sys.executable:
            raise UnsupportedError("backend='process' needs sys.executable, the Python to start, and it is empty")
        with contextlib.ExitStack() as undo:
            self._wire, other = Wire.pair()
            undo.callback(self._wire.close)
            with contextlib.closing(other), standard_streams() as (_, stderr):
                self._process = self._start(other.fileno(), stderr)
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self._pidfd = os.pidfd_open(self._process.pid)
            undo.callback(os.close, self._pidfd)
            try:
                deadline.receive(self._wire, self._resume)  # it says that it is up
            except WireClosed:
                raise StepmillError(
                    f"the process that starts the workers exited with code {self._process.wait()} during its startup; "
                    "see stderr for the reason"
                ) from None
            undo.pop_all()

    def _start(self, wire_fd: int, stderr: int) -> subprocess.Popen[bytes]:
        # The caller's flags: -O, -W, -X, -I and so on.
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        return subprocess.Popen(
            [sys.executable, *flags, "-c", _BOOT, str(wire_fd), str(self._pid), *_import_path()],
            env=one_thread_each(os.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=(wire_fd,),
            start_new_session=True,
        )

    @property
    def is_alive(self) -> bool:
        """Whether it can fork templates."""
        return not is_over(self._pidfd)

    def fork_template(self, fds: Sequence[int], deadline: Deadline) -> tuple[int, int]:
        """A new template: its pid and pidfd. ``fds`` are its wire, stdout, stderr and the pipe for obituaries."""
        with self._lock:
            return ask_for_process(self._wire, "template", (), fds, deadline, self._resume)

    def _resume(self) -> None:
        resume(self._process.pid, self._pidfd)

    def end(self) -> None:
        """Ends the server and all processes that it forked, directly or not."""
        self._wire.hang_up()
        if not ends(self._process.pid, self._pidfd):
            kill(self._pidfd)
        self._process.wait()
        self._wire.close()
        os.close(self._pidfd)

    def forget(self) -> None:
        """In a forked child: closes the descriptors; the server belongs to the parent."""
        self._wire.close()
        os.close(self._pidfd)
        self._process.returncode = 0  # otherwise its destructor warns that the process is still running


def _import_path() -> list[str]:
    """Where the server finds the libraries that this process uses, even if ``sys.path`` has changed since."""
    path = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    homes = [_ROOT, *(str(Path(library.__file__ or "").parents[1]) for library in (np, gymnasium, cloudpickle))]
    return list(dict.fromkeys([*path, *homes]))


# ---- one server for the whole process ------------------------------------------------------------

_lock = threading.RLock()  # the thread that starts a pool may run the garbage collector, which may close another pool
_server: ServerHandle | None = None


def lease_server(deadline: Deadline) -> ServerHandle:
    """The server of this process, started if there is none or if it died. Return it with ``return_server``."""
    global _server
    with _lock:
        if _server is not None:
            _server.users += 1  # before anything else: see the lock
            if _server.is_alive:
                return _server
            return_server(_server)
        server = ServerHandle(deadline)
        server.users += 1
        _server = server
        return server


def return_server(server: ServerHandle) -> None:
    """Gives up a lease; returning the last one ends the server."""
    global _server
    with _lock:
        if server is _server and (server.users == 1 or not server.is_alive):
            _server = None
        server.users -= 1
        if server.users == 0:
            server.end()


def _forget_in_child() -> None:
    global _server, _lock
    _lock = threading.RLock()  # a thread that the fork did not copy may have held it
    if _server is not None:
        _server.forget()
        _server = None


os.register_at_fork(after_in_child=_forget_in_child)
