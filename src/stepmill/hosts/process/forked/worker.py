"""A worker: builds its envs, tells the caller how that goes, and then serves them."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TextIO

import numpy as np

from stepmill import _native
from stepmill.errors import ConfigError, EnvError, StepmillError
from stepmill.hosts.host import describe_source
from stepmill.hosts.process import outgoing
from stepmill.hosts.process.forked.clone import ForkedProcess
from stepmill.hosts.process.forked.step_cost import step_cost
from stepmill.hosts.process.forked.worker_loop import serve
from stepmill.hosts.process.payload import StderrHandler, unpack_payload
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.process.stack import answer_with_stack
from stepmill.hosts.process.wire import Wire, WireClosed, WireStolen, out_of_reach
from stepmill.registry.description import EnvDescription
from stepmill.registry.factories import close_quietly
from stepmill.sources.builder import EnvBuilder
from stepmill.sources.simulator import SimulatorSource
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.system.guardian import (
    become_subreaper,
    die_with_parent,
    exit_if_forked,
    flush_streams,
    remember_own_pid,
)


@dataclass(frozen=True)
class Context:
    """What a worker knows from its template. If ``source`` is None, it has to read ``packed`` for itself."""

    wire: Wire
    dump_fd: int
    template: int
    worker_id: int
    first_env: int
    last_env: int
    tells_progress: bool  # only if the caller reads it; otherwise the wire would fill up
    kind: str  # "worker"; "trial": it only measures what a step costs; "description": it only describes env 0
    source: PythonSource | NativeSource | None
    packed: bytes | None


def main(context: Context) -> None:
    """Runs a worker in a process that the template has just forked. Does not return."""
    code = 1
    try:
        code = _work(context, _set_up_process(context))
    except BaseException:
        exit_if_forked()
        # Any exception ends the process: the caller sees the exit code, the user sees the traceback.
        traceback.print_exc()
    finally:
        exit_if_forked()
        with contextlib.suppress(Exception):
            logging.shutdown()
        flush_streams()
        os._exit(code)


def _set_up_process(context: Context) -> ForkedProcess:
    """Makes this process independent of its template: session, signals, streams, generators."""
    die_with_parent(context.template)
    remember_own_pid()
    os.setsid()  # what the envs spawn is in our group, and ends with us
    become_subreaper()  # or, if it has left the group, is still our child when we end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if context.kind == "trial":
        _fall_silent()
    faulthandler.enable()
    _native.install_crash_note(context.worker_id)
    context.wire.move(out_of_reach)
    dump_fd = out_of_reach(context.dump_fd)
    answer_with_stack(dump_fd)
    _reseed()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a module may have replaced the stream
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    warnings.showwarning = _show_warning
    _prefix_logs()
    return ForkedProcess(context.wire, dump_fd, context.template)


def _fall_silent() -> None:
    """Drops what the env prints, from C code too: the pool's own envs will print it again."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _reseed() -> None:
    """Reseeds global generators, which the fork has copied: otherwise all workers would draw the same numbers."""
    random.seed()
    np.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(random.getrandbits(63))


def _work(context: Context, process: ForkedProcess) -> int:
    wire = context.wire
    envs: list[Any] = []
    try:
        source = context.source or _load(context)
        if context.kind == "trial":
            return _try_out(wire, source)
        builder = EnvBuilder(source) if isinstance(source, PythonSource) else None
        described = None
        if context.kind == "description":
            described = _describe_first(source)
        elif builder is not None:
            described = _build(context, builder, envs)
        elif isinstance(source, NativeSource) and source.simulators is not None:
            _build(context, source.simulators, envs)
        if context.tells_progress:
            wire.send(("ready", described))
        (_, attachment), fds = wire.recv()
    except WireStolen as stolen:
        exit_if_forked()
        sys.stderr.write(f"stepmill: the constructor of an env closed descriptors that are not its own: {stolen}\n")
        return 1
    except WireClosed:  # the caller no longer needs the envs
        _close_all(envs)
        return 0
    except _BuildError as failure:
        _close_all(envs)  # first, because the caller kills us when it gets the message
        with contextlib.suppress(WireClosed):
            wire.send(("failed", failure.env_id, failure.phase, describe(failure.error)))
        return 1
    post = context.worker_id, context.first_env, attachment
    failed = serve(post, source, builder, envs, fds, set_current_env, process)
    with contextlib.suppress(WireClosed):
        wire.send(("closed", failed))
    return 0


def _try_out(wire: Wire, source: PythonSource | NativeSource) -> int:
    """Sends what a step of env 0 costs. Any failure ends this process, and that is answer enough."""
    (_, trial), _ = wire.recv()
    assert isinstance(source, PythonSource)
    wire.send(("loaded",))
    wire.send(("tried", step_cost(source, trial, lambda: wire.send(("stepping",)))))
    return 0


# ---- building ------------------------------------------------------------------------------------


class _BuildError(Exception):
    """An env could not be built. The phase is "import", "constructor", or "config" if our own checks refused it."""

    def __init__(self, env_id: int, phase: str, error: BaseException) -> None:
        super().__init__(env_id, phase, error)
        self.env_id = env_id
        self.phase = phase
        self.error = error


def _load(context: Context) -> PythonSource | NativeSource:
    try:
        payload = unpack_payload(context.packed or b"")
        payload.apply()
        _prefix_logs()
        source = payload.source()
        exit_if_forked()
        return source
    except BaseException as error:  # from the user's modules: it may be anything, and the caller must see it
        exit_if_forked()
        raise _BuildError(context.first_env, phase_of_loading(error), error) from None


def phase_of_loading(error: BaseException) -> str:
    """The phase of a ``_BuildError``: on an island, ids and configurations are looked up while the payload is read."""
    return "config" if outgoing.is_island() and isinstance(error, StepmillError) else "import"


def _build(context: Context, builder: EnvBuilder | SimulatorSource, envs: list[Any]) -> bytes | None:
    """Builds the envs, or the simulators of native ones, into ``envs``.

    Returns what the caller needs to know about envs: of native ones it knows everything already.
    """
    env_id, is_described = context.first_env, isinstance(builder, EnvBuilder)
    try:
        for env_id in range(context.first_env, context.last_env):
            if context.tells_progress:
                context.wire.send(("building", env_id))
            set_current_env(partial(int, env_id))
            _native.set_crash_env(env_id)
            try:
                envs.append(builder.build(env_id, context.worker_id))
            finally:
                exit_if_forked()
            if is_described:
                EnvDescription.of(envs[-1]).check_like(env_id, EnvDescription.of(envs[0]), context.first_env)
            if context.tells_progress:
                context.wire.send(("built", env_id))
        set_current_env(_no_env)
        _native.set_crash_env(-1)
        return _describe(EnvDescription.of_all(envs), context.first_env) if is_described else None
    except WireClosed:
        raise
    except BaseException as error:  # SystemExit and stranger ones: the caller must see them too
        raise _failed(env_id, error) from None


def _failed(env_id: int, error: BaseException) -> _BuildError:
    # From our checks: what a constructor of the user's raised is the cause of an EnvError.
    if isinstance(error, StepmillError) and not isinstance(error, EnvError):
        return _BuildError(env_id, "config", error)
    own = error.__cause__ if isinstance(error, EnvError) else None
    return _BuildError(env_id, "constructor", own or error)


def _describe_first(source: PythonSource | NativeSource) -> bytes:
    """What env 0 is like; if its factory cannot tell, it is built and closed again."""
    assert isinstance(source, PythonSource)
    try:
        return _describe(describe_source(source), 0)
    except BaseException as error:  # as in ``_build``
        raise _failed(0, error) from None
    finally:
        exit_if_forked()


def _describe(description: EnvDescription, env_id: int) -> bytes:
    try:
        if outgoing.is_island():
            description = replace(description, metadata=outgoing.plain_parts(description.metadata))
        return outgoing.pickled(description)
    except Exception as error:
        raise ConfigError(
            f"env {env_id}: its spaces and metadata cannot be pickled: {type(error).__name__}: {error}"
        ) from error


def _close_all(envs: list[Any]) -> None:
    for env in envs:
        close_quietly(env)


# ---- which env prints ----------------------------------------------------------------------------


def _no_env() -> int | None:
    return None


_current_env: Callable[[], int | None] = _no_env


def set_current_env(getter: Callable[[], int | None]) -> None:
    """Takes a function that says which env is running now. It is called only for a log line, so it may be slow."""
    global _current_env
    _current_env = getter


def _prefix() -> str:
    env_id = _current_env()
    return "" if env_id is None else f"[env {env_id}] "


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    with contextlib.suppress(OSError):  # as in Python itself: a warning that cannot be shown is not an error
        (file or sys.stderr).write(f"{_prefix()}{filename}:{lineno}: {category.__name__}: {message}\n")


class _EnvPrefix(logging.Formatter):
    """The lines of another formatter, prefixed with the env."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return _prefix() + self._inner.format(record)


def _prefix_logs() -> None:
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for handler in (one for logger in loggers if isinstance(logger, logging.Logger) for one in logger.handlers):
        if isinstance(handler, StderrHandler) and not isinstance(handler.formatter, _EnvPrefix):
            handler.setFormatter(_EnvPrefix(handler.formatter or logging.Formatter()))
