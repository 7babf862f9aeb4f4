"""The template of a pool: loads once what the envs are built from, and forks the workers that build them."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from stepmill.hosts.process import outgoing
from stepmill.hosts.process.forked import worker
from stepmill.hosts.process.payload import unpack_payload
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.process.stack import answer_with_stack, stop_answering
from stepmill.hosts.process.wire import CLONE, OBITUARY, UNANSWERED, DescriptorsLost, Wire, WireClosed, close_all
from stepmill.sources.source import IslandFacts, PythonSource
from stepmill.system.guardian import (
    Guardian,
    Task,
    become_subreaper,
    die_with_parent,
    exit_if_forked,
    flush_streams,
    outlive_parent,
    remember_own_pid,
)


def main(wire: Wire, stdout: int, stderr: int, obituary: int, server: int) -> None:
    """Runs the template in a process that the server has just forked; and a worker in each process it forks itself."""
    die_with_parent(server)
    remember_own_pid()
    os.setpgid(0, 0)
    become_subreaper()
    _print_to(stdout, stderr)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    server_pidfd = os.pidfd_open(server)
    try:
        (_, packed, load), (dump,) = wire.recv()
        loaded = _load(packed, dump) if load else None
    except WireClosed:
        os._exit(0)
    except BaseException as error:  # from the user's modules: it may be anything, and the caller must see it
        exit_if_forked()
        with contextlib.suppress(WireClosed):
            wire.send(("failed", worker.phase_of_loading(error), describe(error)))
        flush_streams()
        os._exit(1)
    os.close(dump)
    task = _Template(wire, obituary, server_pidfd, packed, loaded).run()
    task()


def _print_to(stdout: int, stderr: int) -> None:
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    close_all((stdout, stderr))


def _load(packed: bytes, dump: int) -> Any:
    """Reads the payload, which imports the user's modules; meanwhile the caller may ask for our stack."""
    answer_with_stack(dump)
    payload = unpack_payload(packed)
    payload.apply()
    source = payload.source()
    if isinstance(source, PythonSource):
        source.preload()
    exit_if_forked()
    stop_answering()
    flush_streams()  # otherwise every worker would print it again
    gc.collect()
    gc.freeze()
    return source


def _packed(found: IslandFacts) -> bytes:
    """What an island knows about the envs, and the caller does not."""
    plain = {id(one): outgoing.plain_parts(one) for one in found.defaults.values()}
    return outgoing.pickled(replace(found, defaults={env_id: plain[id(one)] for env_id, one in found.defaults.items()}))


class _Template:
    """Forks workers on request and watches them."""

    def __init__(self, wire: Wire, obituary: int, server_pidfd: int, packed: bytes, source: Any) -> None:
        self._wire = wire
        self._obituary = obituary
        self._server_pidfd = server_pidfd
        # Workers load for themselves if a loaded template could not be forked: threads do not survive a fork.
        self._packed = packed if source is None else None
        self._source = source
        self._found = _packed(source.found) if isinstance(source, PythonSource) and source.found is not None else None
        self._guardian = Guardian()
        self._guardian.watch(wire, self._serve)
        self._guardian.watch(server_pidfd, self._end)

    def run(self) -> Task:
        """Serves. Returns only in a forked worker, with its task."""
        # From here on only our own code runs. If the server dies, we still have to kill the workers' strays.
        outlive_parent()
        self._guardian.spare()
        with contextlib.suppress(WireClosed):
            self._wire.send(("loaded", len(os.listdir("/proc/self/task")), self._found))
        return self._guardian.run()

    def _serve(self) -> Task | None:
        try:
            (kind, *order), fds = self._wire.recv()
        except WireClosed:
            return self._end()
        except DescriptorsLost as lost:
            if lost.message[0] == "unmute":
                return None
            with contextlib.suppress(WireClosed):
                self._wire.send(("refused", lost.message[1], describe(OSError(*lost.args))))
            return None
        if kind == "unmute":
            _print_to(*fds)
            return None
        if kind == "hold":
            self._guardian.hold()
            return None
        if kind == "adopt":
            self._adopt(*order)
            return None
        return self._fork(kind, *order, fds=fds)

    def _fork(
        self,
        kind: str,
        serial: int,
        worker_id: int,
        incarnation: int,
        first_env: int,
        last_env: int,
        *,
        fds: list[int],
    ) -> Task | None:
        wire_fd, dump = fds
        template, pidfds = os.getpid(), []
        try:
            pid = self._guardian.fork()
            if pid == 0:
                self._wire.close()
                close_all((self._obituary, self._server_pidfd))
                context = worker.Context(
                    Wire(wire_fd),
                    dump,
                    template,
                    worker_id,
                    first_env,
                    last_env,
                    incarnation == 1,
                    kind,
                    self._source,
                    self._packed,
                )
                return partial(worker.main, context)
            pidfds = [self._guardian.keep(pid, partial(self._report_exit, worker_id, incarnation))]
            reply: tuple[object, ...] = ("worker", serial, pid)
        except OSError as error:  # no more processes or descriptors are allowed
            reply = ("refused", serial, describe(error))
        close_all(fds)
        with contextlib.suppress(WireClosed):  # the loop will notice
            self._wire.send(reply, pidfds)
        return None

    def _adopt(self, serial: int, newcomers: Sequence[tuple[int, int, int]]) -> None:
        """Takes in clones, and workers that were made of clones."""
        reply: tuple[object, ...] = ("adopted", serial, None)
        try:
            self._guardian.adopt({pid: partial(self._report_exit, *post) for pid, *post in newcomers})
        except OSError as error:  # no more descriptors are allowed
            reply = ("refused", serial, describe(error))
        if serial != UNANSWERED:
            with contextlib.suppress(WireClosed):  # the loop will notice
                self._wire.send(reply)

    def _report_exit(self, worker_id: int, incarnation: int, status: int) -> None:
        if incarnation == CLONE:
            return
        with contextlib.suppress(OSError):  # the caller has closed the pipe
            os.write(self._obituary, OBITUARY.pack(worker_id, incarnation, status))

    def _end(self) -> Task:
        self._guardian.end()
        os._exit(0)
