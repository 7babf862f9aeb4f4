"""Sees to it that no process outlives its purpose.

A guardian is a child subreaper: whatever its children spawned becomes its own child when they die, however far it
has daemonised itself. So the rule is simple: a child that the guardian did not fork itself is a stray, and is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "Guardian",
    "Task",
    "become_subreaper",
    "children",
    "die_with_parent",
    "flush_streams",
    "leave_if_forked",
    "outlive_parent",
    "stay_this_process",
]

# A task is what a forked child has to do. The loop of its parent returns it in the child, so that nothing of the
# parent, neither its objects nor its stack, stays there.
Task = Callable[[], None]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


class HasFileno(Protocol):
    """What a selector takes beside plain descriptors."""

    def fileno(self) -> int:
        """The descriptor."""


def become_subreaper() -> None:
    """Makes this process the parent of every orphan among its descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when the parent dies; ends it now if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Takes ``die_with_parent`` back."""
    _prctl(_PR_SET_PDEATHSIG, 0)


_own_pid: int | None = None


def stay_this_process() -> None:
    """From now on, ``leave_if_forked`` lets nobody but this process pass."""
    global _own_pid
    _own_pid = os.getpid()


def leave_if_forked() -> None:
    """Ends a process that the user's code has forked off, and that came back from there as if it were this one.

    To be called when code of the user has returned. Two of us would do everything twice. Nothing is flushed: what was
    printed before the fork is the parent's to write.
    """
    if _own_pid is not None and os.getpid() != _own_pid:
        os._exit(0)


def flush_streams() -> None:
    """Writes out what was printed, by C code too: a fork would copy the buffers, and ``os._exit`` drops them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a module may have put its own there, or closed it
            stream.flush()
    _libc.fflush(None)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@dataclass(frozen=True)
class _Child:
    pidfd: int
    on_exit: Callable[[int], None]


class Guardian:
    """A loop over descriptors and children, for a process that does nothing else."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._spared: set[int] = set()
        self._exits: list[tuple[Callable[[int], None], int]] = []

    def watch(self, end: int | HasFileno, on_ready: Callable[[], Task | None]) -> None:
        """Calls ``on_ready`` whenever there is something to read. Returning a task ends the loop."""
        self._selector.register(end, selectors.EVENT_READ, on_ready)

    def fork(self) -> int:
        """Forks. In the child, 0, nothing of the guardian is open any more."""
        pid = os.fork()
        if pid == 0:
            self._let_go()
        return pid

    def keep(self, pid: int, on_exit: Callable[[int], None]) -> int:
        """Watches a child just forked; returns its pidfd, which stays the guardian's."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # no descriptor left: what cannot be watched must not run
            _kill_group(pid)
            os.waitpid(pid, 0)
            raise
        self._children[pid] = _Child(pidfd, on_exit)
        self.watch(pidfd, lambda: self._reap(pid))
        return pidfd

    def spare(self) -> None:
        """Accepts the children there are now: helpers of this process, which end with it."""
        self._spared |= children() - set(self._children)

    def run(self) -> Task:
        """Serves until a callback returns a task."""
        while True:
            for key, _ in self._selector.select():
                task: Task | None = key.data()
                if task is not None:
                    return task
            if self._exits:
                self._kill_strays()
                exits, self._exits = self._exits, []
                for on_exit, status in exits:
                    on_exit(status)

    def end(self) -> None:
        """Kills all descendants and waits until there is none."""
        while True:
            for pid in children():
                _kill_group(pid)
            try:
                result = os.waitid(os.P_ALL, 0, os.WEXITED)
            except ChildProcessError:
                return
            # By now the children of the dead one are ours, and the next look finds them.
            if result is not None and (child := self._children.pop(result.si_pid, None)):
                exited = result.si_code == os.CLD_EXITED
                child.on_exit(result.si_status if exited else -result.si_status)

    def _reap(self, pid: int) -> None:
        child = self._children.pop(pid)
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        _kill_group(pid)  # before its number can be another's
        try:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # code that ran here reaped it: how it ended is lost
            code = -signal.SIGKILL
        self._exits.append((child.on_exit, code))

    def _kill_strays(self) -> None:
        known = set(self._children)
        for pid in children() - known - self._spared:
            _kill_group(pid)
            with contextlib.suppress(OSError):
                self.keep(pid, _nothing)

    def _let_go(self) -> None:
        for child in self._children.values():
            os.close(child.pidfd)
        self._children.clear()
        self._selector.close()


def children() -> set[int]:
    """The children of this process, those that ended and were not waited for among them."""
    try:
        tasks = [f"/proc/self/task/{task}/children" for task in os.listdir("/proc/self/task")]
        return {int(pid) for path in tasks for pid in _read(path).split()}
    except FileNotFoundError:  # a kernel without that file
        return _children_by_search()


def _children_by_search() -> set[int]:
    own, found = os.getpid(), set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                # The name of the program, in brackets, may hold anything.
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                if int(fields[1]) == own:
                    found.add(int(name))
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _kill_group(pid: int) -> None:
    """Kills a child that was not waited for yet, and its process group where it leads one."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _nothing(status: int) -> None:
    pass
