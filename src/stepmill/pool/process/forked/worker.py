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
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

import cloudpickle
import numpy as np

from stepmill.errors import ConfigError, EnvError
from stepmill.factories import close_quietly
from stepmill.pool.description import EnvDescription
from stepmill.pool.own_envs import EnvBuilder
from stepmill.pool.process.forked.guardian import (
    become_subreaper,
    die_with_parent,
    flush_streams,
    leave_if_forked,
    stay_this_process,
)
from stepmill.pool.process.forked.step_cost import step_cost
from stepmill.pool.process.forked.worker_loop import serve
from stepmill.pool.process.payload import StderrHandler, unpack
from stepmill.pool.process.remote_error import describe
from stepmill.pool.process.stack import answer_with_stack
from stepmill.pool.process.wire import Wire, WireClosed, WireStolen, out_of_reach
from stepmill.pool.source import NativeSource, PythonSource

__all__ = ["Context", "main", "set_current_env"]


@dataclass(frozen=True)
class Context:
    """What a worker knows from its template. ``source`` is None where it has to read ``packed`` for itself."""

    wire: Wire
    dump_fd: int
    template: int
    worker_id: int
    first_env: int
    last_env: int
    tells_progress: bool  # somebody listens; else the wire would fill up
    is_trial: bool  # it only finds out what a step costs, see ``trial``
    source: PythonSource | NativeSource | None
    packed: bytes | None


def main(context: Context) -> None:
    """Runs a worker in a process just forked by the template. Does not return."""
    code = 1
    try:
        _settle_in(context)
        code = _work(context)
    except BaseException:
        leave_if_forked()
        # The end of the process, whatever it was: the caller sees the exit code, the user the traceback.
        traceback.print_exc()
    finally:
        leave_if_forked()
        with contextlib.suppress(Exception):
            logging.shutdown()
        flush_streams()
        os._exit(code)


def _settle_in(context: Context) -> None:
    """Makes this process one of its own, and takes apart what a fork shares."""
    die_with_parent(context.template)
    stay_this_process()
    os.setsid()  # whatever the envs spawn is in our group, and ends with us
    become_subreaper()  # or, where it left the group, our child still when we end
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if context.is_trial:
        _fall_silent()
    faulthandler.enable()
    context.wire.move(out_of_reach)
    answer_with_stack(out_of_reach(context.dump_fd))
    _reseed()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # a module may have put its own there
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    warnings.showwarning = _show_warning
    _prefix_logs()


def _fall_silent() -> None:
    """What an env prints, by C code too, is shown when the pool's own do: not twice."""
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.close(nowhere)


def _reseed() -> None:
    """Global generators were copied by the fork: all workers would draw the same numbers."""
    random.seed()
    np.random.seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.manual_seed(random.getrandbits(63))


def _work(context: Context) -> int:
    wire = context.wire
    envs: list[Any] = []
    try:
        source = context.source or _load(context)
        if context.is_trial:
            return _try_out(wire, source)
        builder = EnvBuilder(source) if isinstance(source, PythonSource) else None
        described = None if builder is None else _build(context, builder, envs)
        if context.tells_progress:
            wire.send(("ready", described))
        (_, attachment), fds = wire.recv()
    except WireStolen as stolen:
        leave_if_forked()
        sys.stderr.write(f"stepmill: the constructor of an env closed descriptors that are not its own: {stolen}\n")
        return 1
    except WireClosed:  # nobody wants them any more
        _close_all(envs)
        return 0
    except _BuildFailed as failure:
        _close_all(envs)  # first: the caller kills us when it is told
        with contextlib.suppress(WireClosed):
            wire.send(("failed", failure.env_id, failure.phase, describe(failure.error)))
        return 1
    failed = serve(wire, context.worker_id, source, builder, envs, context.first_env, attachment, fds, set_current_env)
    with contextlib.suppress(WireClosed):
        wire.send(("closed", failed))
    return 0


def _try_out(wire: Wire, source: PythonSource | NativeSource) -> int:
    """Tells what a step of env 0 costs. Whatever goes wrong is the end of this process, and says enough."""
    (_, trial), _ = wire.recv()
    assert isinstance(source, PythonSource)
    wire.send(("loaded",))
    wire.send(("tried", step_cost(source, trial)))
    return 0


# ---- building ------------------------------------------------------------------------------------


class _BuildFailed(Exception):
    """An env could not be built. The phase is "import", "constructor", or "config" where the error is one of ours."""

    def __init__(self, env_id: int, phase: str, error: BaseException) -> None:
        super().__init__(env_id, phase, error)
        self.env_id = env_id
        self.phase = phase
        self.error = error


def _load(context: Context) -> PythonSource | NativeSource:
    try:
        payload = unpack(context.packed or b"")
        payload.apply()
        _prefix_logs()
        source = payload.source()
        leave_if_forked()
        return source
    except BaseException as error:  # of the user's modules; whatever it is, it is for the caller to see
        leave_if_forked()
        raise _BuildFailed(context.first_env, "import", error) from None


def _build(context: Context, builder: EnvBuilder, envs: list[Any]) -> bytes:
    """Builds the envs into ``envs``. What the caller has to know of them."""
    env_id = context.first_env
    try:
        for env_id in range(context.first_env, context.last_env):
            if context.tells_progress:
                context.wire.send(("building", env_id))
            set_current_env(partial(int, env_id))
            try:
                envs.append(builder.build(env_id, context.worker_id))
            finally:
                leave_if_forked()
            EnvDescription.of(envs[-1]).check_like(env_id, EnvDescription.of(envs[0]), context.first_env)
            if context.tells_progress:
                context.wire.send(("built", env_id))
        set_current_env(_no_env)
        return _describe(envs[0], context.first_env)
    except WireClosed:
        raise
    except ConfigError as error:  # ours; one of the constructor's own is the cause of an EnvError
        raise _BuildFailed(env_id, "config", error) from None
    except EnvError as error:
        raise _BuildFailed(env_id, "constructor", error.__cause__ or error) from None
    except BaseException as error:  # SystemExit and stranger ones: for the caller to see, too
        raise _BuildFailed(env_id, "constructor", error) from None


def _describe(env: Any, env_id: int) -> bytes:
    try:
        described: bytes = cloudpickle.dumps(EnvDescription.of(env))
    except Exception as error:
        raise ConfigError(
            f"env {env_id}: its spaces and metadata cannot be pickled: {type(error).__name__}: {error}"
        ) from error
    return described


def _close_all(envs: list[Any]) -> None:
    for env in envs:
        close_quietly(env)


# ---- who is speaking -----------------------------------------------------------------------------


def _no_env() -> int | None:
    return None


_current_env: Callable[[], int | None] = _no_env


def set_current_env(getter: Callable[[], int | None]) -> None:
    """Takes a function that says which env is running now: asked when there is something to show, so it may be slow."""
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
    with contextlib.suppress(OSError):  # as Python's own: a warning that cannot be shown is no error
        (file or sys.stderr).write(f"{_prefix()}{filename}:{lineno}: {category.__name__}: {message}\n")


class _Prefixed(logging.Formatter):
    """Another formatter's lines, with the env in front."""

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        return _prefix() + self._inner.format(record)


def _prefix_logs() -> None:
    loggers = [logging.getLogger(), *logging.root.manager.loggerDict.values()]
    for handler in (one for logger in loggers if isinstance(logger, logging.Logger) for one in logger.handlers):
        if isinstance(handler, StderrHandler) and not isinstance(handler.formatter, _Prefixed):
            handler.setFormatter(_Prefixed(handler.formatter or logging.Formatter()))
