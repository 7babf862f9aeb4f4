"""Messages and descriptors between two processes: pickled frames on a stream socket."""

from __future__ import annotations

import array
import contextlib
import errno
import os
import pickle
import select
import socket
import struct
import time
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["DescriptorsLost", "Wire", "WireClosed", "WireTimeout", "close_all"]

_HEADER = struct.Struct("<Q")
_MAX_FDS = 16
_CHUNK = 1 << 20
_MOST_S = 1e6  # what poll() takes, in milliseconds, is an int


class WireClosed(Exception):
    """The other end is closed, or the process that held it is gone."""


class DescriptorsLost(OSError):
    """A message came without descriptors that were sent with it: this process has no room for them."""

    def __init__(self, message: Any) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.message = message


class WireTimeout(TimeoutError):
    """A wait was too long. A kind of its own: a signal handler may raise a TimeoutError, too, and means the caller."""


class Wire:
    """One end of a connection. One thread at a time may send, and one may receive.

    The socket never blocks; waiting is done by ``poll``, so that every wait can have an end. A ``recv`` that ran
    into its timeout can be called again: what came so far is kept. A ``send`` that did cannot, and closes the wire.
    """

    def __init__(self, end: int | socket.socket) -> None:
        self._socket = socket.socket(fileno=end) if isinstance(end, int) else end
        self._socket.setblocking(False)
        self._socket.set_inheritable(False)
        self._begun = bytearray()  # of a message that has not come whole
        self._fds: list[int] = []
        self._lost_fds = False  # of the same message

    @classmethod
    def pair(cls) -> tuple[Wire, Wire]:
        """The two ends of a new connection."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(one), cls(other)

    def fileno(self) -> int:
        """The descriptor, for selectors; -1 once closed."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes this end. What of a message had come is dropped, with its descriptors."""
        self._socket.close()
        self._begun.clear()
        close_all(self._fds)
        self._fds.clear()

    def hang_up(self) -> None:
        """Ends the connection for both sides at once, even where a forked process holds a copy of this end."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def send(self, message: Any, fds: Sequence[int] = (), timeout: float | None = None) -> None:
        """Sends a message, with copies of ``fds``, which stay the caller's."""
        body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        rest = memoryview(_HEADER.pack(len(body)) + body)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while rest:
                try:
                    sent = self._socket.sendmsg([rest[:_CHUNK]], rights, socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    self._wait(select.POLLOUT, end)
                    continue
                rest, rights = rest[sent:], []  # descriptors travel with the first byte
        except TimeoutError:
            self.close()  # half a message is on the way: nothing that follows could be read
            raise
        except OSError as error:
            raise _as_closed(error) from None

    def recv(self, timeout: float | None = None) -> tuple[Any, list[int]]:
        """The next message and its descriptors, which are the caller's from then on.

        ``DescriptorsLost`` has the message: the wire can be used further.
        """
        end = None if timeout is None else time.monotonic() + timeout
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
            if lost:
                raise DescriptorsLost(message)
        except BaseException:
            close_all(fds)
            raise
        return message, fds

    def _missing(self) -> int:
        """How many bytes the message still lacks; of a header first. Never more: the next message is not ours yet."""
        if len(self._begun) < _HEADER.size:
            return _HEADER.size - len(self._begun)
        (length,) = _HEADER.unpack_from(self._begun)
        return int(_HEADER.size + length - len(self._begun))

    def _read(self, count: int) -> None:
        space = socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize)
        # CLOEXEC at once: a program that another thread starts right after this call must not inherit them.
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
            if poll.poll(None if left is None else min(left, _MOST_S) * 1000):
                return
            if left is not None and left <= _MOST_S:
                raise WireTimeout("nothing came over the wire in time")


def close_all(fds: Iterable[int]) -> None:
    """Closes descriptors, each whatever became of the others."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


def _as_closed(error: OSError) -> Exception:
    if error.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN, errno.EBADF):
        return WireClosed("the other end of the wire is closed")
    return error
