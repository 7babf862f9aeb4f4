"""Makes sure that no process outlives its purpose: what the kernel does for parents and children, and a guardian.

A guardian is a child subreaper: when its children die, the processes they spawned become its own children, even if they
have daemonised themselves. So the rule is simple: a child that the guardian did not fork itself is a stray, and is
killed.

This file is also a program, which ``interpreters`` starts: it imports nothing of ours.
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
from typing import NoReturn, Protocol

# What a forked child has to do. In the child, the loop of its parent returns the task, so that neither the objects nor
# the stack of the parent stay there.
Task = Callable[[], None]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Makes this process the parent of every orphan among its descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when the parent dies; ends it now if the parent is already dead."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def outlive_parent() -> None:
    """Undoes ``die_with_parent``."""
    _prctl(_PR_SET_PDEATHSIG, 0)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


class HasFileno(Protocol):
    """What a selector accepts besides plain descriptors."""

    def fileno(self) -> int:
        """The descriptor."""


_own_pid: int | None = None


def remember_own_pid() -> None:
    """From now on, ``exit_if_forked`` ends every process but this one."""
    global _own_pid
    _own_pid = os.getpid()


def exit_if_forked() -> None:
    """Ends a process that the user's code has forked, and that returned from there as if it were this one.

    Call it when the user's code has returned: otherwise both processes would do everything that follows. Nothing is
    flushed: the parent will write what was printed before the fork.
    """
    if _own_pid is not None and os.getpid() != _own_pid:
        os._exit(0)


def flush_streams() -> None:
    """Flushes output, of C code too: a fork would copy the buffers, and ``os._exit`` drops them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a module may have replaced or closed the stream
            stream.flush()
    _libc.fflush(None)


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
        self._holds = False  # strays are left alone
        self._looks_again = False  # for strays
        self._exits: list[tuple[Callable[[int], None], int]] = []
        self._patience: float | None = None
        self._on_silence: Callable[[], Task | None] | None = None

    def watch(self, end: int | HasFileno, on_ready: Callable[[], Task | None]) -> None:
        """Calls ``on_ready`` whenever there is something to read. If it returns a task, the loop ends."""
        self._selector.register(end, selectors.EVENT_READ, on_ready)

    def limit_wait(self, seconds: float | None, on_silence: Callable[[], Task | None]) -> None:
        """Calls ``on_silence`` when there was nothing to do for that long; None: never."""
        self._patience, self._on_silence = seconds, on_silence

    def fork(self) -> int:
        """Forks. In the child, where it returns 0, the descriptors of the guardian are closed."""
        pid = os.fork()
        if pid == 0:
            self._let_go()
        return pid

    def keep(self, pid: int, on_exit: Callable[[int], None]) -> int:
        """Watches a child that was just forked; returns its pidfd, which the guardian owns."""
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:  # no descriptor is left: a child that cannot be watched must not run
            _kill_group(pid)
            os.waitpid(pid, 0)
            raise
        self._children[pid] = _Child(pidfd, on_exit)
        self.watch(pidfd, lambda: self._reap(pid))
        return pidfd

    def spare(self) -> None:
        """Accepts the present children: they are helpers of this process and end with it."""
        self._spared |= children() - set(self._children)

    def hold(self) -> None:
        """Leaves strays alone until ``adopt``: some of those that come now are meant for us."""
        self._holds = True

    def adopt(self, newcomers: dict[int, Callable[[int], None]]) -> None:
        """Watches processes that became our children since ``hold``, as ``keep`` does; the others are strays."""
        self._holds, self._looks_again = False, True
        for pid in children() & newcomers.keys():  # the numbers come from processes that run the code of others
            self.keep(pid, newcomers[pid])

    def run(self) -> Task:
        """Serves until a callback returns a task."""
        while True:
            ready = [key.data for key, _ in self._selector.select(self._patience)]
            if not ready and self._on_silence is not None:
                ready = [self._on_silence]
            for on_ready in ready:
                task: Task | None = on_ready()
                if task is not None:
                    return task
            if self._exits or self._looks_again:
                self._kill_strays()
                self._tell_exits()

    def end(self) -> None:
        """Kills all descendants and waits until none is left."""
        self._tell_exits()
        while True:
            for pid in children():
                _kill_group(pid)
            try:
                result = os.waitid(os.P_ALL, 0, os.WEXITED)
            except ChildProcessError:
                return
            # The children of the dead process are ours now, and the next round finds them.
            if result is not None and (child := self._children.pop(result.si_pid, None)):
                self._close(child)
                exited = result.si_code == os.CLD_EXITED
                child.on_exit(result.si_status if exited else -result.si_status)

    def _reap(self, pid: int) -> None:
        child = self._children.pop(pid, None)
        if child is None:  # ``end`` was faster
            return
        self._close(child)
        _kill_group(pid)  # before another process can get its number
        try:
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
        except ChildProcessError:  # other code in this process has reaped it: its exit code is lost
            code = -signal.SIGKILL
        self._exits.append((child.on_exit, code))

    def _tell_exits(self) -> None:
        exits, self._exits = self._exits, []
        for on_exit, status in exits:
            on_exit(status)

    def _close(self, child: _Child) -> None:
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)

    def _kill_strays(self) -> None:
        if self._holds:
            return
        strays = children() - set(self._children) - self._spared
        # A message may say that they are meant for us. It was sent before they came, so it is here.
        self._looks_again = bool(strays and self._selector.select(0))
        for pid in () if self._looks_again else strays:
            _kill_group(pid)
            with contextlib.suppress(OSError):
                self.keep(pid, _nothing)

    def _let_go(self) -> None:
        for child in self._children.values():
            os.close(child.pidfd)
        self._children.clear()
        self._selector.close()


def children() -> set[int]:
    """The children of this process, including those that ended and have not been waited for."""
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
                # The name of the program, in brackets, may contain anything.
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                if int(fields[1]) == own:
                    found.add(int(name))
    return found


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def _kill_group(pid: int) -> None:
    """Kills a child that has not been waited for yet, and its process group if it leads one."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def _nothing(status: int) -> None:
    pass


def _guard(caller_pidfd: int, command: list[str]) -> None:
    """Runs a program. Ends with it, with the caller, or by SIGTERM; nothing that the program has started is left."""
    become_subreaper()
    guardian = Guardian()

    def end(code: int = 1) -> NoReturn:
        guardian.end()
        os._exit(code if code >= 0 else 1)

    signal.signal(signal.SIGTERM, lambda *_: end())
    guardian.watch(caller_pidfd, end)
    try:
        guardian.keep(os.posix_spawn(command[0], command, os.environ), end)
    except OSError as error:
        sys.stderr.write(f"it cannot be run: {error}\n")
        end(126)  # as a shell says it
    guardian.run()


if __name__ == "__main__":
    _guard(int(sys.argv[1]), sys.argv[2:])
