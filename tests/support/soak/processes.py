"""What /proc knows of the processes that the soak torments: children, states, memory."""

from __future__ import annotations

import contextlib
import os
import signal


def children(pid: int) -> list[int]:
    """The children of a process; none where it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def open_child(pid: int, parent: int) -> int | None:
    """A pidfd of ``pid`` if that is, at this moment, a child of ``parent``: the number cannot become another's then."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if _fields(pid)[1:2] == [str(parent)]:
        return pidfd
    os.close(pidfd)
    return None


def send(pidfd: int, number: int) -> bool:
    """Sends a signal; whether the process was there to get it."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def pss(pid: int) -> int:
    """The share of a process in the memory of the machine, in bytes; 0 where it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
        for line in lines:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def descriptors() -> list[str]:
    """What this process has open, as /proc names it."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":[")[0])
    return sorted(found)


def describe(pid: int) -> str:
    """One line on a process: its state, and where in the kernel it waits."""
    state = (_fields(pid) or ["gone"])[0]
    where = ""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/wchan") as file:
        where = file.read()
    return f"{pid} state {state} in {where or '?'}"


def _fields(pid: int) -> list[str]:
    """What /proc/pid/stat says after the name: the state, the parent, ..."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []
