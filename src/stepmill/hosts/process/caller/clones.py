"""The caller's side of states by fork: clones of workers, which sleep until a worker is made of them."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from stepmill.errors import ResourceError, StateError, summary
from stepmill.hosts.process.caller.child_process import Deadline, wait_for_any
from stepmill.hosts.process.caller.handles import WorkerHandle
from stepmill.hosts.process.caller.launcher import Launcher
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.process.wire import CLONE, Wire, WireClosed, WireTimeout
from stepmill.system.memory import free_bytes, memory_of
from stepmill.system.uninterrupted import LastingThread, uninterrupted
from stepmill.values.saved_states import StateTicket

_FORK_S = 30.0  # a fork takes milliseconds, longer for very large processes, or if the machine has no memory left
_TICKET = struct.Struct("<8s16sQ")  # what it is, of which pool, and the number of the clone
_MARK = b"\0by fork"  # no pickle begins with it
_PAGE = os.sysconf("SC_PAGE_SIZE")
C = TypeVar("C")


class Clone:
    """A process that sleeps. It ends when nothing refers to this object any more, as states do.

    Attributes:
        wire: To the process, which closes it when it ends.
        pid: Its process; 0 before it is asleep.
        python: The interpreter that runs it.
        about: What else the host wants to know when it is woken.
    """

    wire: Wire
    pid = 0
    _memory = 0  # when it was last looked at; 0: it was not

    def __init__(self, python: str | None, about: Any) -> None:
        self.python, self.about = python, about
        self._owner = os.getpid()

    def connect(self, worker: WorkerHandle, call: int) -> None:
        """Makes the wire, and sends one end to the worker that will be cloned in the call with that number."""
        self.wire, other = Wire.pair()
        with contextlib.closing(other), contextlib.suppress(WireClosed, WireTimeout):  # it is dead: others notice
            worker.wire.send(("clone", call), [other.fileno()], _FORK_S)

    @property
    def is_alive(self) -> bool:
        """Whether it can be woken. It says nothing unless it is asked, so what can be read is its end."""
        return self.wire.fileno() >= 0 and not wait_for_any([self.wire.fileno()], 0.0)

    def most_memory(self) -> int:
        """The most that its end could free, in bytes; takes microseconds."""
        try:
            with open(f"/proc/{self.pid}/statm", "rb") as file:
                _, resident, shared, *_ = map(int, file.read().split())
        except OSError:
            return 0
        return (resident - shared) * _PAGE

    def memory(self, *, now: bool = True) -> int:
        """Its share in the machine's memory (PSS), in bytes: ``now``, which takes milliseconds, or some time ago."""
        if now or self._memory == 0:
            self._memory = memory_of(self.pid)
        return self._memory

    def end(self) -> None:
        """Ends the process."""
        self.wire.cut(hang_up=os.getpid() == self._owner)  # a forked child has only a copy of the descriptor

    def __del__(self) -> None:
        try:  # noqa: SIM105  (when the interpreter ends, contextlib may be gone)
            self.end()
        except Exception:  # it has no wire
            pass


@dataclass(frozen=True)
class WakeCall:
    """A clone that is to be made a worker: which one, and what the new process is told and given."""

    clone: Clone
    worker_id: int
    env_id: int
    attachment: dict[str, Any]
    fds: Sequence[int]  # the arena, its outbox, and what it rings for rows

    @property
    def incarnation(self) -> int:
        """The incarnation of the worker that it will be."""
        return int(self.attachment["incarnation"])


class CloneTickets(Generic[C]):
    """The states by fork of one pool: each ticket is for a clone, which is there as long as a state refers to it.

    Attributes:
        limit: How many clones there may be.
        memory: How much memory they may have, in bytes; None: a quarter of what is free.
    """

    def __init__(self) -> None:
        self.limit = 64
        self.memory: int | None = None
        self._pool = os.urandom(16)
        self._numbers = itertools.count(1)
        self._alive: weakref.WeakValueDictionary[int, C] = weakref.WeakValueDictionary()

    def ticket(self, clone: C) -> StateTicket:
        """A ticket for a clone."""
        number = next(self._numbers)
        self._alive[number] = clone
        return StateTicket(_TICKET.pack(_MARK, self._pool, number), "fork", clone)

    def find(self, env_id: int, ticket: bytes) -> C:
        """The clone that a ticket is for. Raises ``StateError`` if there is none."""
        _, pool, number = _TICKET.unpack(ticket)
        if pool != self._pool:
            raise unusable(env_id, "it was saved by fork in another pool, and is a process of that one")
        clone = self._alive.get(number)
        if clone is None:
            why = "its process has ended, as nobody has the state that save() returned: a pickle of it does not count"
            raise unusable(env_id, why)
        return clone


class Clones(CloneTickets[Clone]):
    """The clones of the workers of this process.

    Attributes:
        where: What messages add to say whose clones they count.
    """

    where = ""

    def __init__(self, launcher: Launcher) -> None:
        super().__init__()
        self._launcher = launcher
        self._looks = 0
        self._free, self._free_until = 0, 0.0
        self._thread = LastingThread()

    def alive(self) -> list[Clone]:
        """The clones that can be woken."""
        return [clone for clone in self._alive.values() if clone.is_alive]

    def close(self) -> None:
        """Ends all of them."""
        for clone in list(self._alive.values()):
            clone.end()
        self._thread = LastingThread()  # the one before ends

    # ---- saving ------------------------------------------------------------------------------

    def save(
        self, workers: Sequence[WorkerHandle], abouts: Sequence[Any], ask: Callable[[int], list[int]]
    ) -> list[StateTicket]:
        """Clones workers. ``ask`` asks them to fork, with the number of this call, and returns the pids.

        It is asked where signal handlers can interrupt it, for a worker may be stopped; all else is done elsewhere.
        """
        worker_ids = [worker.worker_id for worker in workers]
        shares = self._launcher.shares
        clones = [Clone(shares[one].python, about) for one, about in zip(worker_ids, abouts, strict=True)]
        call = next(self._numbers)
        try:
            uninterrupted(lambda _: self._prepare(workers, clones, call), self._thread)
            pids = ask(call)
            return uninterrupted(lambda _: self._finish(worker_ids, clones, pids), self._thread)
        except BaseException:
            uninterrupted(lambda _: self._launcher.adopt(worker_ids, ()), self._thread)
            raise

    def _prepare(self, workers: Sequence[WorkerHandle], clones: Sequence[Clone], call: int) -> None:
        self._check_room(len(workers))
        self._launcher.hold(worker.worker_id for worker in workers)
        for worker, clone in zip(workers, clones, strict=True):
            clone.connect(worker, call)

    def _finish(self, worker_ids: list[int], clones: list[Clone], pids: list[int]) -> list[StateTicket]:
        newcomers = []
        for worker_id, clone, pid in zip(worker_ids, clones, pids, strict=True):
            clone.pid = pid
            newcomers.append((pid, worker_id, CLONE))
        self._launcher.adopt(worker_ids, newcomers)
        return [self.ticket(clone) for clone in clones]

    def _check_room(self, count: int) -> None:
        # No clone is in this frame: what is raised holds it.
        there, used = self._take_stock()
        if there + count > self.limit:
            raise ResourceError(
                f"save: {_states(there)} saved by fork {'is' if there == 1 else 'are'} in use{self.where}, each with a "
                f"process, and {count} more would be too many: pool.clone_limit={self.limit}. Drop states that you no "
                "longer need, or raise it"
            )
        if used > (most := self._most_memory(used)):
            raise ResourceError(
                f"save: {_states(there)} saved by fork{self.where} took {used >> 20} MiB of memory, more than "
                f"{most >> 20} MiB: {self._shown_memory()}. Drop states that you no longer need, or raise it"
            )

    def _take_stock(self) -> tuple[int, int]:
        """How many there are, and their memory; 0 if it cannot be too much."""
        alive = self.alive()
        if not alive or sum(clone.most_memory() for clone in alive) <= self._most_memory(0):
            return len(alive), 0
        self._looks += 1
        alive[self._looks % len(alive)].memory()  # they grow slowly: one of them is looked at each time
        return len(alive), sum(clone.memory(now=False) for clone in alive)

    def _most_memory(self, used: int) -> int:
        if self.memory is not None:
            return self.memory
        if time.monotonic() > self._free_until:  # to find out takes a while, and another save may follow
            self._free, self._free_until = free_bytes(), time.monotonic() + 1.0
        return (self._free + used) // 4

    def _shown_memory(self) -> str:
        if self.memory is None:
            return "pool.clone_memory=None, which is a quarter of the free memory"
        return f"pool.clone_memory={self.memory}"

    # ---- restoring ---------------------------------------------------------------------------

    def find_for(self, env_id: int, ticket: bytes, python: str | None) -> Clone:
        """The clone that a ticket is for. Raises ``StateError`` if an env of that interpreter cannot be made of it."""
        clone = self.find(env_id, ticket)
        if not clone.is_alive:
            raise unusable(env_id, f"its process (pid {clone.pid}) has ended, by itself or by a signal")
        if clone.python != python:
            raise unusable(env_id, "it was saved by fork, and the env has another python")
        return clone

    def wake(self, calls: Sequence[WakeCall], cancel_fd: int | None) -> list[WorkerHandle]:
        """Makes a worker of each clone. They are ready, and wait to be told ``("serve",)``."""
        deadline = Deadline(_FORK_S, cancel_fd)
        worker_ids = [one.worker_id for one in calls]
        made = []
        with contextlib.ExitStack() as undo:
            undo.callback(self._launcher.adopt, worker_ids, ())
            self._launcher.hold(worker_ids)
            ends = [_send(one, undo, deadline) for one in calls]
            for one, (wire, dump_fd) in zip(calls, ends, strict=True):
                pid, pidfd = _wait_until_ready(one, wire, deadline)
                undo.callback(os.close, pidfd)
                made.append((one.worker_id, one.incarnation, wire, pid, pidfd, dump_fd))
            newcomers = [(pid, worker_id, incarnation) for worker_id, incarnation, _, pid, _, _ in made]
            self._launcher.adopt(worker_ids, newcomers, sure=True)
            undo.pop_all()
        return [self._launcher.handle_of(*one) for one in made]


def is_ticket(state: bytes) -> bool:
    """Whether a state is by fork, so that these bytes only say where it is."""
    return len(state) == _TICKET.size and state.startswith(_MARK)


def unusable(env_id: int, why: str) -> StateError:
    """The error for a state that an env cannot be given."""
    return StateError(f"restore: the state for env {env_id} cannot be restored: {why}")


def _states(count: int) -> str:
    return f"{count} state{'' if count == 1 else 's'}"


def _send(call: WakeCall, undo: contextlib.ExitStack, deadline: Deadline) -> tuple[Wire, int]:
    """Asks a clone for a worker. Returns our ends of it: wire, and the pipe for its stack."""
    wire, other = Wire.pair()
    undo.callback(wire.close)
    with contextlib.closing(other):
        dump_fd, dump = os.pipe2(os.O_CLOEXEC)
        undo.callback(os.close, dump_fd)
        try:
            post = ("wake", call.worker_id, call.env_id, call.attachment)
            call.clone.wire.send(post, [other.fileno(), dump, *call.fds], deadline.left)
        except (WireClosed, WireTimeout):
            raise _lost(call) from None
        finally:
            os.close(dump)
    return wire, dump_fd


def _wait_until_ready(call: WakeCall, wire: Wire, deadline: Deadline) -> tuple[int, int]:
    clone = call.clone.wire
    try:
        ready = deadline.wait([wire.fileno(), clone.fileno()])
        if wire.fileno() in ready:
            (_, pid), (pidfd,) = wire.recv(deadline.left)
            return pid, pidfd
        (_, described), _ = clone.recv(deadline.left)
    except (WireClosed, TimeoutError):
        raise _lost(call) from None
    error = rebuild(described)
    raise ResourceError(
        f"restore: no process can be forked for env {call.env_id}: {summary(error)}", getattr(error, "errno", None)
    )


def _lost(call: WakeCall) -> StateError:
    return unusable(call.env_id, f"its process (pid {call.clone.pid}) has ended, or does not answer")
