"""The caller's ends of the server and of a template: start them, ask them, end them."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium
import numpy as np

from stepmill.errors import StepmillError, UnsupportedError
from stepmill.pool.process.patience import Patience, wait_for_any
from stepmill.pool.process.payload import one_thread_each
from stepmill.pool.process.remote_error import rebuild
from stepmill.pool.process.stack import read_stack
from stepmill.pool.process.wire import DescriptorsLost, Wire, WireClosed, close_all
from stepmill.refusals import explained_refusals

__all__ = ["LoadError", "TemplateHandle", "is_over", "kill", "lease_server", "return_server"]

_ROOT = str(Path(__file__).parents[3])  # the folder that holds the package
_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from stepmill.pool.process.server import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)
_serials = itertools.count(1)
_GLANCE_S = 0.1
_END_S = 5.0  # our own processes end in milliseconds; on a machine that is out of memory, later


def is_over(pidfd: int, seconds: float = 0.0) -> bool:
    """Whether a process has ended, or ends within ``seconds``."""
    return bool(wait_for_any([pidfd], seconds))


def kill(pidfd: int) -> None:
    """SIGKILL, which no process outlives."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def resume(pid: int, pidfd: int) -> None:
    """Has a process of ours go on where somebody stopped it (SIGSTOP): what it was asked for would never come."""
    with contextlib.suppress(OSError):  # it is gone; or there is no descriptor left to look
        # The name of the program, in brackets, may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        if fields[:1] == [b"T"]:
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)


def _ends(pid: int, pidfd: int) -> bool:
    """Whether a process that was told to end does so."""
    patience = Patience(_END_S)
    with contextlib.suppress(TimeoutError):
        while not patience.wait([pidfd], _GLANCE_S):
            resume(pid, pidfd)
        return True
    return False


def _ask(
    wire: Wire,
    kind: str,
    about: tuple[int, ...],
    fds: Sequence[int],
    patience: Patience,
    meanwhile: Callable[[], None],
) -> tuple[int, int]:
    """Asks for a process: its pid and pidfd."""
    serial = next(_serials)
    wire.send((kind, serial, *about), fds, patience.left)
    while True:
        try:
            (kind, answered, answer), received = patience.receive(wire, meanwhile)
        except DescriptorsLost as lost:  # where it is ours, the process ends as soon as its wire is closed
            if lost.message[1] == serial:
                raise
            continue
        if answered == serial:
            break
        close_all(received)  # for somebody who gave up waiting
    if kind == "refused":
        with explained_refusals("a worker process could not be started"):
            raise rebuild(answer)
    return answer, received[0]


class _Server:
    """The base server, started by exec."""

    def __init__(self, patience: Patience) -> None:
        self.users = 0
        self._lock = threading.Lock()
        self._pid = os.getpid()
        if not sys.executable:
            raise UnsupportedError("backend='process' needs sys.executable, the Python to start, and it is empty")
        with contextlib.ExitStack() as undo:
            self._wire, other = Wire.pair()
            undo.callback(self._wire.close)
            with contextlib.closing(other), _standard_streams() as (_, stderr):
                self._process = self._start(other.fileno(), stderr)
            undo.callback(self._process.wait)
            undo.callback(self._process.kill)
            self._pidfd = os.pidfd_open(self._process.pid)
            undo.callback(os.close, self._pidfd)
            try:
                patience.receive(self._wire, self._resume)  # that it is up
            except WireClosed:
                raise StepmillError(
                    f"the process that starts the workers ended with code {self._process.wait()} while it started; "
                    "stderr says why"
                ) from None
            undo.pop_all()

    def _start(self, wire_fd: int, stderr: int) -> subprocess.Popen[bytes]:
        # Those of the caller: -O, -W, -X, -I and so on.
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
        """Whether it can be asked for templates."""
        return not is_over(self._pidfd)

    def fork_template(self, fds: Sequence[int], patience: Patience) -> tuple[int, int]:
        """A new template: its pid and pidfd. ``fds`` are its wire, stdout, stderr and where obituaries go."""
        with self._lock:
            return _ask(self._wire, "template", (), fds, patience, self._resume)

    def _resume(self) -> None:
        resume(self._process.pid, self._pidfd)

    def end(self) -> None:
        """Ends it, with everything that came from it."""
        self._wire.hang_up()
        if not _ends(self._process.pid, self._pidfd):
            kill(self._pidfd)
        self._process.wait()
        self._wire.close()
        os.close(self._pidfd)

    def forget(self) -> None:
        """In a forked child: lets go of what belongs to the parent."""
        self._wire.close()
        os.close(self._pidfd)
        self._process.returncode = 0  # else its destructor warns of a process that is still running


def _import_path() -> list[str]:
    """Where the server finds the libraries that this process uses, though ``sys.path`` may have changed since."""
    path = [os.path.abspath(entry) for entry in sys.path if isinstance(entry, str)]
    homes = [_ROOT, *(str(Path(library.__file__ or "").parents[1]) for library in (np, gymnasium, cloudpickle))]
    return list(dict.fromkeys([*path, *homes]))


# ---- one server for the whole process ------------------------------------------------------------

_lock = threading.RLock()  # a pool may be collected, and closed, by the very thread that is starting another
_server: _Server | None = None


def lease_server(patience: Patience) -> _Server:
    """The server of this process, started if there is none or if it died. To be returned."""
    global _server
    with _lock:
        if _server is not None:
            _server.users += 1  # before anything else: see the lock
            if _server.is_alive:
                return _server
            return_server(_server)
        server = _Server(patience)
        server.users += 1
        _server = server
        return server


def return_server(server: _Server) -> None:
    """Gives up a lease; the last one ends the server."""
    global _server
    with _lock:
        if server is _server and (server.users == 1 or not server.is_alive):
            _server = None
        server.users -= 1
        if server.users == 0:
            server.end()


def _forget_in_child() -> None:
    global _server, _lock
    _lock = threading.RLock()  # a thread that is not here may have held it
    if _server is not None:
        _server.forget()
        _server = None


os.register_at_fork(after_in_child=_forget_in_child)


# ---- templates -----------------------------------------------------------------------------------


class TemplateHandle:
    """A template, forked by a server that lives as long as it is needed.

    What a ``silent`` one prints, and what its workers print, is held back until it may ``speak``.
    """

    def __init__(self, obituary: int, patience: Patience, *, silent: bool = False) -> None:
        self._is_loaded = False
        self._held_back: list[int] = []  # files in place of its stdout and stderr
        with contextlib.ExitStack() as undo:
            self._server = lease_server(patience)
            undo.callback(return_server, self._server)
            self._wire, other = Wire.pair()
            undo.callback(self._wire.close)
            if silent:
                undo.callback(lambda: close_all(self._held_back))
                for name in ("stdout", "stderr"):
                    self._held_back.append(os.memfd_create(name))
            with contextlib.closing(other), _standard_streams() as heard:
                stdout, stderr = self._held_back or heard
                fds = (other.fileno(), stdout, stderr, obituary)
                self.pid, self.pidfd = self._server.fork_template(fds, patience)
            undo.callback(os.close, self.pidfd)
            undo.callback(kill, self.pidfd)
            self._dump_fd, self._dump_write = os.pipe2(os.O_CLOEXEC)
            undo.pop_all()

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked for workers."""
        return not is_over(self.pidfd)

    def load(self, packed: bytes, here: bool, patience: Patience) -> int:
        """Hands over the payload, to be read ``here`` or by each worker. Returns how many threads there are then."""
        self._wire.send(("payload", packed, here), [self._dump_write], patience.left)
        (kind, answer), _ = patience.receive(self._wire, self._resume)
        if kind == "failed":
            raise LoadError(answer)
        self._is_loaded = True
        return int(answer)

    def speak(self, patience: Patience) -> None:
        """Has it heard from now on, and its workers; what it has printed so far is shown first."""
        if not self._held_back:
            return
        with _standard_streams() as heard:
            for held_back, stream in zip(self._held_back, heard, strict=True):
                _copy(held_back, stream)
            self._wire.send(("speak",), heard, patience.left)
        close_all(self._held_back)
        self._held_back = []

    def fork_worker(
        self, kind: str, worker_id: int, incarnation: int, envs: tuple[int, int], fds: Sequence[int], patience: Patience
    ) -> tuple[int, int]:
        """A new "worker", or one for a "trial": its pid and pidfd. ``fds`` are its wire and the pipe for its stack."""
        return _ask(self._wire, kind, (worker_id, incarnation, *envs), fds, patience, self._resume)

    def _resume(self) -> None:
        resume(self.pid, self.pidfd)

    def stack(self) -> str:
        """Where it is, while it loads."""
        return read_stack(self.pidfd, self._dump_fd, self.pid)

    def end(self) -> None:
        """Kills it with all of its workers and what these spawned, and waits for that."""
        self._wire.hang_up()
        # Told so, it sees to the others itself; not while it runs code of the user.
        if not (self._is_loaded and _ends(self.pid, self.pidfd)):
            kill(self.pidfd)
            is_over(self.pidfd, _END_S)
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


@contextlib.contextmanager
def _standard_streams() -> Iterator[tuple[int, int]]:
    """Descriptors of stdout and stderr: of the streams where they have one, else the real ones, else nowhere."""
    with contextlib.ExitStack() as opened:
        yield _stream_fd(sys.stdout, 1, opened), _stream_fd(sys.stderr, 2, opened)


def _copy(file: int, stream: int) -> None:
    """Writes a whole file to a stream, as far as that takes it."""
    text = memoryview(os.pread(file, os.fstat(file).st_size, 0))
    with contextlib.suppress(OSError):
        while text:
            text = text[os.write(stream, text) :]


def _stream_fd(stream: Any, default: int, opened: contextlib.ExitStack) -> int:
    for find in (lambda: stream.fileno(), lambda: default):
        with contextlib.suppress(Exception):  # a notebook's stream, or a test's, may do anything
            fd: int = find()
            os.fstat(fd)
            return fd
    fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    opened.callback(os.close, fd)
    return fd
