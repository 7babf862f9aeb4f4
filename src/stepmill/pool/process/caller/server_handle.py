"""The caller's ends of base servers: one per interpreter for the whole process, leased by its pools."""

from __future__ import annotations

import contextlib
import errno
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
from stepmill.interpreters import environ_for, is_same_build, why_unusable
from stepmill.pool.process.caller.child_process import ask_for_process, ends, is_over, kill, resume
from stepmill.pool.process.caller.deadline import Deadline
from stepmill.pool.process.caller.streams import standard_streams
from stepmill.pool.process.payload import one_thread_each
from stepmill.pool.process.wire import Wire, WireClosed, close_all

__all__ = ["lease_server", "return_server"]

_ROOT = str(Path(__file__).parents[4])  # the folder that holds the package
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from stepmill.pool.process.forked.server import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
# With its own path, except for the folder it is started in.
_ISLAND_BOOT = (
    "import sys; sys.path[:] = [entry for entry in sys.path if entry]; "
    "from stepmill.pool.process.forked.server import main; main(int(sys.argv[1]), int(sys.argv[2]), True)"
)
_PROBE_S = 5.0  # to find out why an interpreter does not start a server, if there is not more time left


class ServerHandle:
    """A base server, started by exec: with the interpreter ``python``, or with that of this process.

    It is used once ``wait_until_up`` has returned. ``versions`` are then those of its interpreter, see ``pickling``.
    """

    versions: tuple[str, str]

    def __init__(self, deadline: Deadline, python: str | None = None) -> None:
        self.users = 0
        self._is_up = False
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self.python = python
        if python is None and not sys.executable:
            raise UnsupportedError("backend='process' needs sys.executable, the Python to start, and it is empty")
        with contextlib.ExitStack() as undo:
            self._wire, other = Wire.pair()
            undo.callback(self._wire.close)
            with contextlib.closing(other):
                # Where an island may complain: into a file, because ``why_unusable`` knows better what is wrong.
                self._complaints = os.memfd_create("stderr", os.MFD_CLOEXEC)
                undo.callback(os.close, self._complaints)
                with standard_streams() as (_, stderr):
                    where = stderr if python is None else self._complaints
                    self._process = self._start(other.fileno(), where, deadline)
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self._pidfd = os.pidfd_open(self._process.pid)
            undo.pop_all()

    def wait_until_up(self, deadline: Deadline) -> None:
        """Returns when it can fork templates. Others may have waited for it already."""
        with self._lock:
            if self._is_up:
                return
            try:
                (_, mark, self.versions), _ = deadline.receive(self._wire, self._resume)  # it says that it is up
                self._is_up = self.python is None or is_same_build(mark)
            except (WireClosed, ValueError):  # the latter: another version says something else
                pass
            if not self._is_up:
                raise self._failure(deadline)

    def _start(self, wire_fd: int, stderr: int, deadline: Deadline) -> subprocess.Popen[bytes]:
        python = self.python
        about = [str(wire_fd), str(self._pid)]
        if python is None:
            # The caller's flags: -O, -W, -X, -I and so on.
            flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
            command, environ = [sys.executable, *flags, "-c", _BOOT, *about, *_import_path()], dict(os.environ)
        else:  # other versions have other flags
            command = [python, *["-O"] * sys.flags.optimize, "-c", _ISLAND_BOOT, *about]
            environ = environ_for(python, os.environ)
        try:
            return subprocess.Popen(
                command,
                env=one_thread_each(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(wire_fd,),
                start_new_session=True,
            )
        except OSError as error:
            if python is None or error.errno not in (errno.ENOEXEC, errno.EACCES, errno.ENOENT, errno.ENOTDIR):
                raise
            raise why_unusable(python, _time_for_probe(deadline), None) from None

    def _failure(self, deadline: Deadline) -> StepmillError:
        self._wire.hang_up()
        if not ends(self._process.pid, self._pidfd):
            self._process.kill()
        code = self._process.wait()
        if self.python is None:
            return StepmillError(
                f"the process that starts the workers exited with code {code} during its startup; see stderr for the "
                "reason"
            )
        said = os.pread(self._complaints, os.fstat(self._complaints).st_size, 0).decode(errors="replace").strip()
        return why_unusable(self.python, _time_for_probe(deadline), code, said)

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
        if not (self._is_up and ends(self._process.pid, self._pidfd)):
            kill(self._pidfd)
        self._process.wait()
        self._close_descriptors()

    def forget(self) -> None:
        """In a forked child: closes the descriptors; the server belongs to the parent."""
        self._close_descriptors()
        self._process.returncode = 0  # otherwise its destructor warns that the process is still running

    def _close_descriptors(self) -> None:
        self._wire.close()
        close_all((self._pidfd, self._complaints))


def _time_for_probe(deadline: Deadline) -> float:
    return max(deadline.left or 0.0, _PROBE_S)


def _import_path() -> list[str]:
    """Where the server finds the libraries that this process uses, even if ``sys.path`` has changed since."""
    path = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    homes = [_ROOT, *(str(Path(library.__file__ or "").parents[1]) for library in (np, gymnasium, cloudpickle))]
    return list(dict.fromkeys([*path, *homes]))


# ---- one server per interpreter for the whole process -------------------------------------------

_lock = threading.RLock()  # the thread that starts a pool may run the garbage collector, which may close another pool
_servers: dict[str | None, ServerHandle] = {}


def lease_server(deadline: Deadline, python: str | None = None) -> ServerHandle:
    """The server of an interpreter, started if there is none or if it died. Return it with ``return_server``.

    It may not be up yet: servers of several interpreters start at the same time.
    """
    with _lock:
        server = _servers.get(python)
        if server is not None:
            server.users += 1  # before anything else: see the lock
            if server.is_alive:
                return server
            return_server(server)
        server = ServerHandle(deadline, python)
        server.users += 1
        _servers[python] = server
        return server


def return_server(server: ServerHandle) -> None:
    """Gives up a lease; returning the last one ends the server."""
    with _lock:
        if server is _servers.get(server.python) and (server.users == 1 or not server.is_alive):
            del _servers[server.python]
        server.users -= 1
        if server.users == 0:
            server.end()


def _forget_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # a thread that the fork did not copy may have held it
    for server in _servers.values():
        server.forget()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_in_child)
