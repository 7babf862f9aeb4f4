"""Waits until the workers have built their envs, and says what went wrong if one has not."""

from __future__ import annotations

import os
import signal
from typing import Any

from stepmill.errors import EnvError, EnvTimeoutError, StepmillError
from stepmill.hosts.process.caller.child_process import Deadline, wait_for_any
from stepmill.hosts.process.caller.handles import WorkerHandle
from stepmill.hosts.process.remote_error import rebuild, summary
from stepmill.hosts.process.wire import OBITUARY, WireClosed
from stepmill.system.progress import Progress

_OBITUARY_S = 2.0
_STACKS = 4  # if more workers are stuck, the other stacks look the same


def wait_until_built(workers: list[WorkerHandle], source_id: str, obituary_fd: int, deadline: Deadline) -> None:
    """Returns when all workers are ready; raises the first failure."""
    _Construction(workers, source_id, obituary_fd).wait(deadline)


class _Construction:
    def __init__(self, workers: list[WorkerHandle], source_id: str, obituary_fd: int) -> None:
        self._workers = workers
        self._source_id = source_id
        self._obituary_fd = obituary_fd
        self._building: dict[int, int] = {one.worker_id: one.envs[0] for one in workers}
        self._built = 0

    def wait(self, deadline: Deadline) -> None:
        total = sum(last - first for first, last in (one.envs for one in self._workers))
        progress = Progress()
        by_fd = {fd: one for one in self._workers for fd in (one.wire.fileno(), one.pidfd)}
        try:
            while not all(one.is_ready for one in self._workers):
                for one in {by_fd[fd].worker_id: by_fd[fd] for fd in self._wait(deadline, by_fd, progress)}.values():
                    self._read(one)
                progress.show(f"built {self._built} of {total} envs")
        finally:
            progress.end()

    def _wait(self, deadline: Deadline, fds: Any, progress: Progress) -> set[int]:
        try:
            return deadline.wait(fds, progress.until_next())
        except TimeoutError:
            raise self._timeout(deadline) from None

    def _read(self, worker: WorkerHandle) -> None:
        """Reads all that a worker has sent. A dead worker will not send anything else."""
        is_dead = bool(wait_for_any([worker.pidfd], 0.0))
        while True:
            try:
                (kind, *content), _ = worker.wire.recv(0.0)
            except TimeoutError:
                break
            except WireClosed:
                is_dead = True
                break
            self._take(worker, kind, content)
        if is_dead:
            raise death_error(
                self._building[worker.worker_id],
                find_exit(self._obituary_fd, worker.worker_id, worker.incarnation, worker.template),
            )

    def _take(self, worker: WorkerHandle, kind: str, content: list[Any]) -> None:
        if kind == "building":
            self._building[worker.worker_id] = content[0]
        elif kind == "built":
            self._built += 1
        elif kind == "ready":
            worker.is_ready = True
            worker.ready_payload = content[0]
        elif kind == "failed":
            raise build_error(self._source_id, *content)

    def _timeout(self, deadline: Deadline) -> EnvTimeoutError:
        stuck = [one for one in self._workers if not one.is_ready]
        ids = [self._building[one.worker_id] for one in stuck]
        shown = f"env {ids[0]} is" if len(ids) == 1 else f"envs {', '.join(map(str, ids))} are"
        stacks = [
            f"\n\nThe worker of env {env_id} is here:\n{one.stack()}"
            for env_id, one in zip(ids[:_STACKS], stuck, strict=False)
        ]
        return EnvTimeoutError(
            f"start_timeout={deadline.seconds}: after that many seconds {shown} still being built "
            f"({self._source_id}){''.join(stacks)}",
            env_id=ids[0],
            phase="constructor",
        )


def build_error(source_id: str, env_id: int | None, phase: str, description: bytes) -> StepmillError:
    """The error for a worker's message ("failed", env id, phase, description)."""
    cause = rebuild(description)
    if phase == "config" and isinstance(cause, StepmillError):  # from our own checks: its message is complete
        return cause
    what = f"the constructor of env {env_id} ({source_id})" if phase != "import" else f"loading {source_id}"
    error = EnvError(f"{what} failed: {summary(description)}", env_id=env_id, phase="constructor")
    error.__cause__ = cause
    return error


def death_error(env_id: int, status: int | None) -> EnvError:
    """The error for a worker that died while it built an env."""
    return EnvError(
        f"the worker process died while it built env {env_id}: {describe_exit(status)}",
        env_id=env_id,
        phase="constructor",
    )


def find_exit(obituary_fd: int, worker_id: int, incarnation: int, template: int) -> int | None:
    """How a dead worker ended, from its obituary; None if none arrives. Other obituaries that it finds are dropped."""
    while wait_for_any([obituary_fd], _OBITUARY_S):
        try:
            *who, status = OBITUARY.unpack(os.read(obituary_fd, OBITUARY.size))
        except BlockingIOError:  # the engine's monitor was faster
            continue
        if who == [worker_id, incarnation]:
            return int(status)
        if who == [-1, template]:  # its workers died with it
            return -signal.SIGKILL
    return None


def describe_exit(status: int | None) -> str:
    """An exit code in words; negative ones are signals."""
    if status is None:
        return "its exit code is not known"
    if status >= 0:
        return f"it exited with code {status}"
    try:
        return f"it was killed by {signal.Signals(-status).name}"
    except ValueError:  # a real-time signal
        return f"it was killed by signal {-status}"
