"""What processes tell each other: pickled messages, with descriptors, on a stream socket; and how a process ended."""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import pickle
import resource
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_HEADER = struct.Struct("<Q")
_MAX_FDS = 16
_CHUNK = 1 << 20
MOST_S = 1e6  # what poll() takes, in milliseconds, is an int
# A program reaches these numbers only if it opens hundreds of files.
_HIGH_FD = 960


# What unpickling raises for bytes that are not a pickle. Nothing that a signal handler would raise: that must reach
# the caller.
_GARBLED = (
    pickle.UnpicklingError,
    EOFError,
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    TypeError,
    ValueError,
)


# What the pool is told about a death: worker id, incarnation, and the exit code or minus the signal. It is written at
# once, so it never arrives in part. A worker id of -1 means the template itself, with its pid as the incarnation.
OBITUARY = struct.Struct("<iii")
UNANSWERED = 0  # the serial number of a request to which nobody waits for an answer
CLONE = -1  # instead of an incarnation: nobody waits for the obituary of a clone


class WireClosed(Exception):
    """The other end is closed, or the process that held it is gone."""


class WireStolen(WireClosed):
    """Other code in this process has closed our descriptor; its number may now belong to another file."""


class DescriptorsLost(OSError):
    """A message arrived without the descriptors that were sent with it: this process has no room for them."""

    def __init__(self, message: Any) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.message = message


class WireTimeout(TimeoutError):
    """A wait took too long. Not a plain TimeoutError: a signal handler may raise that, and it is for the caller."""


class Wire:
    """One end of a connection. One thread at a time may send, and one may receive.

    The socket never blocks; we wait with ``poll``, so that every wait can have a deadline. After a timeout, ``recv``
    can be called again: it keeps what has arrived so far. ``send`` cannot, so it closes the wire.
    """

    def __init__(self, end: int | socket.socket) -> None:
        self._take(end)
        self._begun = bytearray()  # the first part of a message that has not arrived completely
        self._fds: list[int] = []
        self._lost_fds = False  # of the same message

    def _take(self, end: int | socket.socket) -> None:
        self._socket = socket.socket(fileno=end) if isinstance(end, int) else end
        self._socket.setblocking(False)
        self._socket.set_inheritable(False)
        self._identity = _identity(self._socket.fileno())

    @classmethod
    def pair(cls) -> tuple[Wire, Wire]:
        """The two ends of a new connection."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """The descriptor, for selectors; -1 once closed."""
        return self._socket.fileno()

    def move(self, elsewhere: Callable[[int], int]) -> None:
        """Moves this end to another descriptor, which ``elsewhere`` returns for the present one."""
        self._socket = socket.socket(fileno=elsewhere(self._socket.detach()))
        self._socket.setblocking(False)

    def replace(self, end: int) -> None:
        """Closes this end, and becomes that of another connection."""
        self.close()
        self._take(end)

    def close(self) -> None:
        """Closes this end. An incomplete message is dropped, with its descriptors."""
        with contextlib.suppress(WireStolen):
            self._check_ours()
        self._socket.close()
        self._begun.clear()
        close_all(self._fds)
        self._fds.clear()

    def hang_up(self) -> None:
        """Ends the connection for both sides at once, even if a forked process holds a copy of this end."""
        with contextlib.suppress(OSError, WireStolen):
            self._check_ours()
            self._socket.shutdown(socket.SHUT_RDWR)

    def cut(self, *, hang_up: bool) -> None:
        """Closes this end, and before that hangs up, if wanted: in a process where no env's code runs.

        Even if a signal handler raises meanwhile, the descriptor is closed with the socket.
        """
        if hang_up:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def send(self, message: Any, fds: Sequence[int] = (), timeout: float | None = None) -> None:
        """Sends a message, with copies of ``fds``, which the caller keeps."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        rest = memoryview(_HEADER.pack(len(body)) + body)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        end = None if timeout is None else time.monotonic() + timeout
        self._check_ours()
        try:
            while rest:
                try:
                    sent = self._socket.sendmsg([rest[:_CHUNK]], rights, socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    self._wait(select.POLLOUT, end)
                    continue
                rest, rights = rest[sent:], []  # descriptors travel with the first byte
        except TimeoutError:
            self.close()  # half a message has been sent: nothing that follows could be read
            raise
        except OSError as error:
            raise _as_closed(error) from None

    def recv(self, timeout: float | None = None) -> tuple[Any, list[int]]:
        """The next message and its descriptors, which the caller then owns.

        ``DescriptorsLost`` carries the message: the wire can still be used.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._check_ours()
        while (missing := self._missing()) > 0:
            try:
                self._read(missing)
            except BlockingIOError:
                self._wait(select.POLLIN, end)
            except OSError as error:
                raise _as_closed(error) from None
        body, self._begun = self._begun, bytearray()
        fds, self._fds = self._fds, []
        lost, self._lost_fds = self._lost_fds, False
        try:
            message = pickle.loads(memoryview(body)[_HEADER.size :])
        except _GARBLED as error:  # we did not send this: other code wrote into our descriptor
            close_all(fds)
            raise WireClosed(f"a message on the wire cannot be read: {error}") from None
        except BaseException:
            close_all(fds)
            raise
        if lost:
            close_all(fds)
            raise DescriptorsLost(message)
        return message, fds

    def _check_ours(self) -> None:
        """An env may close any descriptor and then open a file with its number: we must not write into that."""
        number = self._socket.fileno()
        if number >= 0 and _identity(number) != self._identity:
            self._socket.detach()
            raise WireStolen(f"descriptor {number} is no longer the wire's")

    def _missing(self) -> int:
        """How many bytes are missing, first of the header, then of the message. Never reads into the next message."""
        if len(self._begun) < _HEADER.size:
            return _HEADER.size - len(self._begun)
        (length,) = _HEADER.unpack_from(self._begun)
        return int(_HEADER.size + length - len(self._begun))

    def _read(self, count: int) -> None:
        space = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        # CLOEXEC at once: a program that another thread starts right after this call must not inherit the descriptors.
        data, control, flags, _ = self._socket.recvmsg(min(count, _CHUNK), space, socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                got = array.array("i")
                got.frombytes(content[: len(content) - len(content) % got.itemsize])
                self._fds.extend(got)
        self._lost_fds |= bool(flags & socket.MSG_CTRUNC)
        if not data:
            raise WireClosed("the other end of the wire is closed")
        self._begun += data

    def _wait(self, event: int, end: float | None) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        while True:
            left = None if end is None else max(end - time.monotonic(), 0.0)
            if poll.poll(None if left is None else min(left, MOST_S) * 1000):
                return
            if left is not None and left <= MOST_S:
                raise WireTimeout("no message arrived on the wire in time")


def close_all(fds: Iterable[int]) -> None:
    """Closes all descriptors, even if closing one of them fails."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def out_of_reach(fd: int) -> int:
    """Moves a descriptor to a high number: an env that closes descriptors at random and opens files uses low ones."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = _HIGH_FD if soft == resource.RLIM_INFINITY else min(_HIGH_FD, soft - _MAX_FDS)
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(least, 0))
    except OSError:  # no high number is free
        return fd
    os.close(fd)
    return high


def _identity(fd: int) -> tuple[int, int] | None:
    """The file that a descriptor stands for; None if it is closed."""
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _as_closed(error: OSError) -> Exception:
    if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF):
        return WireClosed("the other end of the wire is closed")
    return error
