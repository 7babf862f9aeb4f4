"""What this process has open: threads, child processes, file descriptors."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from dataclasses import dataclass

__all__ = ["Belongings"]


@dataclass(frozen=True)
class Belongings:
    """A picture of one moment. Child processes and descriptors are seen where there is a ``/proc``."""

    threads: frozenset[threading.Thread]
    processes: frozenset[int]
    files: frozenset[tuple[int, str]]

    @classmethod
    def now(cls) -> Belongings:
        """What is open at this moment."""
        return cls(frozenset(threading.enumerate()), frozenset(_children()), frozenset(_files()))

    def since(self, earlier: Belongings, patience: float = 0.0) -> list[str]:
        """What is open now and was not then, in words. Who is on the way out has some seconds for it."""
        threads = [thread.name for thread in self.threads - earlier.threads if _runs_on(thread, patience)]
        processes = [pid for pid in self.processes - earlier.processes if _lives_on(pid, patience)]
        files = [target for number, target in self.files - earlier.files if _target(number) == target]
        words = [f"the thread {name!r}" for name in sorted(threads)]
        words += [f"the process {pid}" for pid in sorted(processes)]
        return words + [f"the descriptor of {target}" for target in sorted(files)]


def _runs_on(thread: threading.Thread, patience: float) -> bool:
    thread.join(patience)
    return thread.is_alive()


def _lives_on(pid: int, patience: float) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        exits = select.poll()
        exits.register(pidfd, select.POLLIN)
        return not exits.poll(patience * 1000)
    finally:
        os.close(pidfd)


def _children() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and _parent(name) == os.getpid()]
    return []


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):  # gone by now
        return None


def _files() -> list[tuple[int, str]]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir("/proc/self/fd")
    found = [(int(name), _target(int(name))) for name in names]
    return [(number, target) for number, target in found if target is not None]


def _target(number: int) -> str | None:
    """What a descriptor stands for; None for one that is closed, as the one that ``listdir`` just read with."""
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return None
