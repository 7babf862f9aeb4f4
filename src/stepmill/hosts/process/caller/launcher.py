"""The caller's side of worker processes: starts them, replaces those that died, and leaves none behind."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from stepmill.errors import ClosedError, EnvError, StateError
from stepmill.hosts.process.caller.child_process import CancelledWait, Deadline, is_over, kill
from stepmill.hosts.process.caller.construction import find_exit, wait_until_built
from stepmill.hosts.process.caller.handles import TemplateHandle, WorkerHandle
from stepmill.hosts.process.caller.interpreter_part import InterpreterPart
from stepmill.hosts.process.pickling import ABROAD, AT_HOME, BY_NAME, Destination
from stepmill.hosts.process.trial import StepCost, StepTrial, Stopwatch
from stepmill.hosts.process.wire import Wire, WireClosed, close_all
from stepmill.hosts.shares import share_out
from stepmill.registry.description import EnvDescription
from stepmill.settings import Settings
from stepmill.sources.source import IslandFacts, NativeSource, PythonSource
from stepmill.system.uninterrupted import uninterrupted

_FORK_S = 10.0  # a fork takes milliseconds, but the process that forks may have been stopped
_KILL_S = 5.0  # a killed process is gone in milliseconds, unless a driver holds it
_TRIAL = 0  # the incarnation of a worker on trial; those that serve start with 1


class _StillWaiting(Exception):
    """The trial is over, and the env has not finished a step: it waits for something."""


class Launcher:
    """The worker processes of one pool, each of which has its ``shares`` of the envs.

    It owns every ``WorkerHandle`` it returns: you may close one early, and ``close`` closes the rest. Obituaries of the
    workers can be read from ``obituary_fd``, see ``OBITUARY`` in ``wire.py``.
    """

    def __init__(self, source: PythonSource | NativeSource, settings: Settings) -> None:
        self._source_id = source.id
        self.share_out(source, settings)
        self._start_timeout = settings.start_timeout
        self._pid = os.getpid()
        self._started: list[WorkerHandle] = []
        self._until_started = contextlib.ExitStack()  # leases of the servers
        self.obituary_fd, self._obituary_write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.obituary_fd, False)  # the engine's monitor reads it too, and may be faster
        self._is_closed = False
        self._parts: dict[str | None, InterpreterPart] = {}
        try:
            for python in dict.fromkeys(share.python for share in self.shares):
                self._parts[python] = InterpreterPart(source, python, self._obituary_write, self._start_timeout)
        except BaseException:
            self._close_descriptors()
            raise

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` has finished."""
        return self._is_closed

    @property
    def found(self) -> list[IslandFacts]:
        """What islands have found out about their envs."""
        return [part.found for part in self._parts.values() if part.found is not None]

    @property
    def destination(self) -> Destination:
        """Where a message that any worker can read is sent to."""
        if self._parts.keys() == {None}:
            return AT_HOME
        return ABROAD if all(part.takes_code for part in self._parts.values()) else BY_NAME

    def try_out(self, trial: StepTrial) -> StepCost | None:
        """What a step of env 0 costs: a worker builds it, steps it for a while and closes it. Its output is not shown.

        None if the env is heavy, failed in any way, or worked for too long. The worker has ended in any case. If all
        went well, what was loaded for it stays loaded, which saves ``start`` the time.
        """
        return uninterrupted(partial(self._try_out, trial))

    def share_out(self, source: PythonSource | NativeSource, settings: Settings) -> None:
        """Gives the envs to another number of workers, before any has started."""
        self.shares = share_out(source, settings.num_envs, settings.num_workers)

    def start(self) -> list[WorkerHandle]:
        """Starts all workers, which build their envs at the same time, and waits until all are ready.

        After a failure, a timeout or Ctrl-C, everything is killed and closed.
        """
        try:
            return uninterrupted(self._start)
        except BaseException:
            self.close()
            raise

    def describe(self) -> bytes:
        """What env 0 is like, as the worker describes it that would build it. All processes have ended then."""
        try:
            (worker,) = uninterrupted(partial(self._start, kind="description"))
            return worker.ready_payload or b""
        finally:
            self.close()

    def fork_worker(self, worker_id: int, incarnation: int) -> WorkerHandle:
        """Forks a worker again, without waiting until it has built its envs: read its wire, see ``worker``.

        Takes milliseconds; longer only if the template has died and a new one has to load everything again. After an
        exception no worker is left, but an obituary may arrive: try again with another incarnation.
        """
        if self._is_closed or os.getpid() != self._pid:
            raise ClosedError("the worker processes of this pool are closed, or belong to the parent of this process")
        try:
            return uninterrupted(partial(self._fork_again, worker_id, incarnation))
        except BaseException:
            for worker in self._started:
                if (worker.worker_id, worker.incarnation) == (worker_id, incarnation) and not worker.is_closed:
                    kill(worker.pidfd)
                    worker.close()
            raise

    def hold(self, worker_ids: Iterable[int]) -> None:
        """From now on, workers and clones may fork processes for their templates: see ``adopt``."""
        for part in self._parts_of(worker_ids):
            with self._template_needed():
                if part.template is not None:
                    part.template.hold(Deadline(_FORK_S))

    def adopt(
        self, worker_ids: Iterable[int], newcomers: Sequence[tuple[int, int, int]], *, sure: bool = False
    ) -> None:
        """Ends ``hold``. Of what was forked meanwhile, the templates keep these, and kill the others.

        Each is (pid, worker id, incarnation or ``CLONE``). ``sure`` waits until they have them; if one has no
        descriptor left for that, it ends them, and this raises.
        """
        for part in self._parts_of(worker_ids):
            its = [one for one in newcomers if self.shares[one[1]].python == part.python]
            with self._template_needed() if its else contextlib.suppress(WireClosed, TimeoutError):
                if part.template is not None:
                    part.template.adopt(its, Deadline(_FORK_S), sure)

    def _parts_of(self, worker_ids: Iterable[int]) -> list[InterpreterPart]:
        return [self._parts[python] for python in {self.shares[one].python for one in worker_ids}]

    @contextlib.contextmanager
    def _template_needed(self) -> Iterator[None]:
        try:
            yield
        except (WireClosed, TimeoutError) as error:  # its workers and clones have ended with it, or will
            raise StateError(f"the process that starts the workers of {self._source_id} does not answer") from error

    def handle_of(
        self, worker_id: int, incarnation: int, wire: Wire, pid: int, pidfd: int, dump_fd: int
    ) -> WorkerHandle:
        """A worker that was just started, by its template or by a clone. It takes over our ends of it."""
        template = self._parts[self.shares[worker_id].python].template
        assert template is not None, "it is the parent of the process"
        envs = self.shares[worker_id][:2]
        started = WorkerHandle(worker_id, incarnation, envs, wire, pidfd, pid, dump_fd, template.pid)
        self._started = [*(one for one in self._started if not one.is_closed), started]
        return started

    def close(self) -> None:
        """Kills every process of the pool, and what they spawned, and releases everything.

        In a forked child, it only closes the child's copies of the descriptors.
        """
        if self._is_closed:
            return
        if os.getpid() == self._pid:
            uninterrupted(lambda _: self._close())
            return
        for part in self._parts.values():
            part.forget()
        self._close_descriptors()

    def __del__(self) -> None:
        """For a launcher that no pool took, because of a Ctrl-C."""
        try:  # noqa: SIM105  (when the interpreter ends, contextlib may be gone)
            self.close()
        except Exception:  # it was never built
            pass

    # ---- in a thread that no signal handler interrupts -----------------------------------------------

    def _start(self, cancel_fd: int | None, kind: str = "worker") -> list[WorkerHandle]:
        deadline = Deadline(self._start_timeout, cancel_fd)
        for part in self._parts.values():  # each step for all of them, so that they do it at the same time
            with part.explained(self.obituary_fd):
                part.keep_server(deadline, self._until_started)
        for part in self._parts.values():
            with part.explained(self.obituary_fd):
                part.loading_template(deadline)
        for part in self._parts.values():
            with part.explained(self.obituary_fd):
                part.loaded_template(deadline).unmute(deadline)
        self._until_started.close()
        for worker_id, share in enumerate(self.shares if kind == "worker" else self.shares[:1]):
            part = self._parts[share.python]
            with part.explained(self.obituary_fd):
                self._fork(part.loaded_template(deadline), worker_id, 1, kind)
        wait_until_built(self._started, self._source_id, self.obituary_fd, deadline)
        return list(self._started)

    def _try_out(self, trial: StepTrial, cancel_fd: int | None) -> StepCost | None:
        try:
            deadline = Deadline(self._start_timeout, cancel_fd)
            part = self._parts[self.shares[0].python]
            part.keep_server(deadline, self._until_started)
            worker = self._fork(part.loaded_template(deadline, silent=True), 0, _TRIAL, "trial")
            worker.wire.send(("try", trial), timeout=deadline.left)
            deadline.receive(worker.wire)  # it says that it has loaded what the template could not
            cost = self._result_of_trial(worker, Deadline(trial.most_s, cancel_fd))
            worker.close()
            return cost
        except CancelledWait:
            raise
        except Exception as error:  # a pool of processes will run into the same problem, and report it
            self._kill_all()
            for worker in self._started:
                worker.close()
            return StepCost(math.inf, 0.0, waits=True) if isinstance(error, _StillWaiting) else None

    def _result_of_trial(self, worker: WorkerHandle, deadline: Deadline) -> StepCost | None:
        cost: StepCost | None = None
        (kind, *answer), _ = deadline.receive(worker.wire)
        if kind == "stepping":
            watch = Stopwatch(worker.pid)
            try:
                (_, *answer), _ = deadline.receive(worker.wire)
            except TimeoutError as error:
                if watch.mostly_waits():
                    raise _StillWaiting from error
                raise
        (cost,) = answer
        deadline.wait([worker.pidfd])
        if find_exit(self.obituary_fd, worker.worker_id, worker.incarnation, worker.template) != 0:
            raise EnvError("the trial did not end properly")
        return cost

    def _fork_again(self, worker_id: int, incarnation: int, cancel_fd: int | None) -> WorkerHandle:
        part = self._parts[self.shares[worker_id].python]
        if part.template is not None and part.template.is_alive:
            with contextlib.suppress(WireClosed, TimeoutError):  # it is dying, or a signal has stopped it
                return self._fork(part.template, worker_id, incarnation)
        self._kill(part)
        with part.explained(self.obituary_fd):
            template = part.loaded_template(Deadline(self._start_timeout, cancel_fd))
            return self._fork(template, worker_id, incarnation)

    def _fork(self, template: TemplateHandle, worker_id: int, incarnation: int, kind: str = "worker") -> WorkerHandle:
        """Forks a worker. It has no cancel descriptor: cancelled halfway, it would leave a worker without a handle."""
        envs = self.shares[worker_id][:2]
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            wire, other = Wire.pair()
            ours.callback(wire.close)
            theirs.callback(other.close)
            dump_fd, dump = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, dump_fd)
            theirs.callback(os.close, dump)
            fds = (other.fileno(), dump)
            pid, pidfd = template.fork_worker(kind, worker_id, incarnation, envs, fds, Deadline(_FORK_S))
            ours.pop_all()
        return self.handle_of(worker_id, incarnation, wire, pid, pidfd, dump_fd)

    def _kill_all(self) -> None:
        for part in self._parts.values():
            self._kill(part)

    def _kill(self, part: InterpreterPart) -> None:
        part.end()
        for worker in self._started:
            # Its template was killed and could not end it.
            is_there = self.shares[worker.worker_id].python == part.python
            if is_there and not worker.is_closed and not is_over(worker.pidfd):
                kill(worker.pidfd)
                is_over(worker.pidfd, _KILL_S)

    def _close(self) -> None:
        self._kill_all()
        self._until_started.close()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            for worker in self._started:
                worker.close()
            self._started.clear()
            close_all((self.obituary_fd, self._obituary_write))


# ---- what only an env knows ----------------------------------------------------------------------


def describe_source_in_worker(source: PythonSource, settings: Settings) -> tuple[PythonSource, EnvDescription]:
    """What env 0 is like, and the source with what islands have found out. As ``describe_source``, in a worker."""
    launcher = Launcher(source, settings)
    described: EnvDescription = pickle.loads(launcher.describe())
    return source.completed(launcher.found), described
