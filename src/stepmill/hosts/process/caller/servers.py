"""The base servers of this process, which its pools lease. One that no pool needs stays for a while.

To start one costs as much as to start an interpreter and import our libraries; to fork a template costs milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Hashable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from stepmill.system.uninterrupted import uninterrupted

if TYPE_CHECKING:
    from stepmill.hosts.process.caller.child_process import Deadline
    from stepmill.hosts.process.caller.server_handle import ServerHandle


_STAY_S = 10.0

# What programs, the system's libraries and those that a server loads read from the environment when they start.
_READ_AT_START = (
    *("GLIBC_", "LANG", "LC_", "LD_", "MALLOC_", "PYTHON", "TZ"),
    *("GOMP_", "KMP_", "MKL_", "NPY_", "NUMEXPR_", "OMP_", "OPENBLAS_", "VECLIB_"),
)

_lock = threading.RLock()  # the thread that starts a pool may run the garbage collector, which may close another pool
_servers: dict[Hashable, ServerHandle] = {}
_may_stay = True


def lease_server(
    deadline: Deadline, python: str | None = None, environ: Mapping[str, str] = MappingProxyType({})
) -> ServerHandle:
    """A server of an interpreter, started if none fits or if it ended. Return it with ``return_server``.

    It may not be up yet: servers of several interpreters start at the same time. ``environ``: what it has in its
    environment besides.
    """
    from stepmill.hosts.process.caller.server_handle import ServerHandle

    key = (*_key(python), *sorted(environ.items()))
    with _lock:
        _end_resting(only_ended=True)
        server = _servers.get(key)
        if server is not None:
            server.users += 1  # before anything else: see the lock
            if server.is_alive and (server.users > 1 or server.wake()):
                return server
            del _servers[key]
            return_server(server)
        server = _servers[key] = ServerHandle(deadline, python, key, environ)
        server.users += 1
        return server


def return_server(server: ServerHandle) -> None:
    """Gives up a lease. After the last one, the server has no other process below it, and ends after a while."""
    with _lock:
        is_last, is_known = server.users == 1, _servers.get(server.key) is server
        if is_last and is_known and _may_stay and server.rest(_STAY_S):
            server.users = 0
            return
        if is_known and (is_last or not server.is_alive):
            del _servers[server.key]
        server.users -= 1
        if server.users == 0:
            server.end()


def end_servers() -> None:
    """Ends the processes that stay for 10 s after the last pool, so that the next one starts quickly.

    Tests that count processes or descriptors call this after they have closed their pools. A process that an open pool
    uses goes on.

    Example:
        >>> import stepmill.testing
        >>> stepmill.testing.end_servers()
    """
    uninterrupted(lambda _: _end_resting())


def describe_servers() -> list[dict[str, Any]]:
    """The processes that start workers, for ``stats()``: the pid, the interpreter, and how many pools each serves."""
    found = [one for one in list(_servers.values()) if one.is_alive]
    return [{"pid": one.pid, "python": one.python or sys.executable, "pools": one.users} for one in found]


def _key(python: str | None) -> tuple[Hashable, ...]:
    """What a server has from its start on, and cannot change for a pool: see ``payload`` for what it can."""
    environ = sorted((name, value) for name, value in os.environ.items() if name.startswith(_READ_AT_START))
    return python, _installed(python), sys.executable, *environ, os.getresuid(), os.getresgid(), *os.getgroups()


def _installed(python: str | None) -> tuple[Any, ...]:
    """Changes when packages are installed on an island. Those at home have been imported into this process, too.

    Not the time of the folder itself: the first interpreter that runs there may write its bytecode into it.
    """
    found = []
    folders = [] if python is None else Path(python).parents[1].glob("lib/python*/site-packages")
    for one in (one for folder in folders for one in os.scandir(folder)):
        if one.name.endswith((".dist-info", ".egg-info", ".pth")):
            with contextlib.suppress(FileNotFoundError):  # it is being replaced
                found.append((one.name, one.stat().st_mtime_ns))
    return tuple(sorted(found))


def _end_resting(only_ended: bool = False) -> None:
    with _lock:
        for server in list(_servers.values()):
            if server.users != 0 or _servers.get(server.key) is not server:  # see the lock: it may have gone meanwhile
                continue
            if not (only_ended and server.is_alive):
                del _servers[server.key]
                server.end()


@atexit.register
def _stay_no_longer() -> None:
    """Pools that are still open are closed after this, or before: either way no server is left."""
    global _may_stay
    _may_stay = False
    end_servers()  # in another thread: there the garbage collector may close a pool, which needs the lock


def _forget_in_child() -> None:
    global _lock, _may_stay
    _lock = threading.RLock()  # a thread that the fork did not copy may have held it
    _may_stay = False  # children often end without any cleanup
    for server in _servers.values():
        server.forget()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_in_child)
