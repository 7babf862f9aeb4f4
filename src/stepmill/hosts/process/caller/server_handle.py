"""The caller's end of a base server."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import cloudpickle
import gymnasium
import numpy as np

from stepmill.errors import StepmillError, UnsupportedError
from stepmill.hosts.process.caller.child_process import END_S, Deadline, ask, ask_for_process, ends, is_over, resume
from stepmill.hosts.process.payload import one_thread_each
from stepmill.hosts.process.wire import Wire, WireClosed, close_all
from stepmill.system.interpreters import end_program, environ_for, is_same_build, start_program, why_unusable

_ROOT = str(Path(__file__).parents[4])  # the folder that holds the package
# Modules are no garbage: to look for some while they are imported only takes time.
_BOOT = (
    "import gc, sys; gc.disable(); sys.path[:] = sys.argv[3:]; "
    "from stepmill.hosts.process.forked.server import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
# With its own path, except for the folder it is started in.
_ISLAND_BOOT = (
    "import gc, sys; gc.disable(); sys.path[:] = [entry for entry in sys.path if entry]; "
    "from stepmill.hosts.process.forked.server import main; main(int(sys.argv[1]), int(sys.argv[2]), True)"
)
_WAKE_S = 1.0  # it answers at once; if it does not, a new one is up sooner than we would know why
_PROBE_S = 5.0  # to find out why an interpreter does not start a server, if there is not more time left


class ServerHandle:
    """A base server, started by exec: with the interpreter ``python``, or with that of this process.

    It is used once ``wait_until_up`` has returned. ``versions`` are then those of its interpreter, see ``pickling``.
    ``users`` and ``key`` are for ``servers``: how many leases it has, and for whom it is.
    """

    versions: tuple[str, str]

    def __init__(
        self,
        deadline: Deadline,
        python: str | None = None,
        key: Hashable = None,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.users = 0
        self.key = key
        self._environ = environ
        self._is_up = False
        self._lock = threading.Lock()
        self.python = python
        if python is None and not sys.executable:
            raise UnsupportedError("backend='process' needs sys.executable, the Python to start, and it is empty")
        with contextlib.ExitStack() as undo:
            self._wire, other = Wire.pair()
            undo.callback(self._wire.close)
            with contextlib.closing(other):
                # Where it may complain. Not our stderr, which it would hold open for longer than any pool needs.
                self._complaints = os.memfd_create("stderr", os.MFD_CLOEXEC)
                undo.callback(os.close, self._complaints)
                self._process = self._start(other.fileno(), deadline)
            undo.callback(end_program, self._process)
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

    def _start(self, wire_fd: int, deadline: Deadline) -> subprocess.Popen[bytes]:
        python = self.python
        caller = os.pidfd_open(os.getpid())
        about = [str(wire_fd), str(caller)]
        if python is None:
            # The caller's flags: -O, -W, -X, -I and so on.
            flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
            command, environ = [sys.executable, *flags, "-c", _BOOT, *about, *_import_path()], dict(os.environ)
        else:  # other versions have other flags
            command = [python, *["-O"] * sys.flags.optimize, "-c", _ISLAND_BOOT, *about]
            environ = environ_for(python, os.environ)
        try:
            environ = one_thread_each({**environ, **self._environ})
            return start_program(command, environ, subprocess.DEVNULL, self._complaints, (wire_fd, caller))
        except OSError as error:
            if python is None or error.errno not in (errno.ENOEXEC, errno.EACCES, errno.ENOENT, errno.ENOTDIR):
                raise
            raise why_unusable(python, _time_for_probe(deadline), None) from None
        finally:
            os.close(caller)

    def _failure(self, deadline: Deadline) -> StepmillError:
        self._wire.hang_up()
        if not ends(self.pid, self._pidfd):
            end_program(self._process)
        code = self._process.wait()
        said = os.pread(self._complaints, os.fstat(self._complaints).st_size, 0).decode(errors="replace").strip()
        if self.python is None:
            return StepmillError(
                f"the process that starts the workers exited with code {code} during its startup"
                f"{f': {said[-2000:]}' if said else ''}"
            )
        return why_unusable(self.python, _time_for_probe(deadline), code, said)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can fork templates."""
        return not is_over(self._pidfd)

    def fork_template(self, fds: Sequence[int], deadline: Deadline) -> tuple[int, int]:
        """A new template: its pid and pidfd. ``fds`` are its wire, stdout, stderr and the pipe for obituaries."""
        with self._lock:
            return ask_for_process(self._wire, "template", (), fds, deadline, self._resume)

    def rest(self, seconds: float) -> bool:
        """Tells it that no pool needs it: it kills what is left of those it served, and ends after ``seconds``.

        Returns whether it does: all other processes are gone then. Otherwise use ``end``.
        """
        return self._is_up and self._tell("rest", (seconds,), END_S)

    def wake(self) -> bool:
        """Calls it back from its rest. Returns whether it was still there; from now on it does not end by itself."""
        if self._tell("wake", (), _WAKE_S):
            return True
        end_program(self._process)  # not as in ``end``: nothing is below it that it could end better
        return False

    def _tell(self, what: str, about: tuple[float, ...], seconds: float) -> bool:
        try:
            ask(self._wire, what, about, (), Deadline(seconds), self._resume)
            return True
        except (WireClosed, OSError):
            return False

    def _resume(self) -> None:
        resume(self.pid, self._pidfd)

    def end(self) -> None:
        """Ends the server and all processes that it forked, directly or not."""
        self._wire.hang_up()
        if not (self._is_up and ends(self.pid, self._pidfd)):
            end_program(self._process)
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
