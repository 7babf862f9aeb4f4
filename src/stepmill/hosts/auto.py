"""``backend="auto"`` for Python envs: worker processes or the calling thread, whichever is faster.

This is decided before the pool's envs exist, because no env can be moved: a copy would share globals with its
neighbours, lose what a C library keeps for it, or start its episode over. So one extra env is built, in a worker that
steps it for a while and has ended before env 0 is built. Then the pool's envs are built once, in the right place.
"""

from __future__ import annotations

import functools
import logging
import math
import types
from dataclasses import replace
from typing import Any, Literal

from stepmill import _native
from stepmill.errors import ConfigError
from stepmill.hosts.process.caller.launcher import Launcher
from stepmill.hosts.process.trial import StepCost, StepTrial
from stepmill.registry.factories import EnvFactory
from stepmill.registry.records import GymnasiumFactory
from stepmill.settings import Settings
from stepmill.sources.source import PythonSource
from stepmill.system.memory import free_bytes

Backend = Literal["inline", "process"]

# Seconds of a trial. An env whose constructor takes longer than the first is heavy (or its imports are), and is not
# stepped. The steps of all others are measured for the second. A trial that takes longer than the third is killed.
_HEAVY_S, _ENOUGH_S, _MOST_S = 0.5, 0.02, 1.0

# Fitted to the time of a batch of 2, 8 and 64 CartPoles and envs of 100 µs, inline and in processes, which
# benchmarks/results has for 2 and for 16 cores; and, on 2 cores, of CartPoles and envs of 5 to 100 µs in async batches.
#
# What a step costs besides the env's own code, on either backend: the action, the row, the loop.
_ROW_S = 1.5e-6
# The extra cost of a batch in processes: the caller and the workers wake each other. A caller with its own core spins
# while it waits; without one it sleeps, which costs a futex each way. An async pool hides part of that.
_SPIN_S, _SLEEP_S, _ASYNC_SLEEP_S = 5e-6, 35e-6, 20e-6
_RECEIVED_ROW_S = 0.6e-6  # the caller's own work for each row of such a batch
_SWITCH_S = 5e-6  # if workers share cores: from the process of one env to that of the next

# Workers for envs that wait: how many at most, and what each takes besides its envs.
_MOST_WAITING, _WORKER_BYTES = 64, 7 << 20

_log = logging.getLogger("stepmill")


def choose_backend(source: PythonSource, settings: Settings) -> tuple[Backend, Launcher | None, Settings]:
    """Where the envs of a pool run faster; and, for worker processes, the launcher if it has already started loading.

    Envs that wait get more workers than there are cores: the settings say how many.

    If anything goes wrong in the trial, the answer is processes, without a warning: a serious problem will show up in
    the pool as well. If env 0 cannot stand for all, the answer is processes without a trial. Envs that cannot be sent
    to a process run in the calling thread.
    """
    if settings.num_envs == 1 and not source.has_coroutines:  # there is no other env to run in parallel
        _tell(source, settings, "inline", "there is one env")
        return "inline", None, settings
    try:
        launcher = Launcher(source, settings)
    except (ConfigError, OSError) as error:  # they cannot be pickled, or the system refuses a descriptor
        _log.warning("the envs run in the calling thread: %s", error)
        return "inline", None, settings
    try:
        if _are_heavy(source) or not _first_stands_for_all(source, settings):
            _tell(source, settings, "process", "without a trial, because they are heavy or of several kinds")
            return "process", launcher, settings
        if source.has_coroutines:
            _tell(source, settings, "process", "their methods are coroutines")
            return "process", launcher, settings
        cost = launcher.try_out(StepTrial(settings.seed[0], _HEAVY_S, _ENOUGH_S, _MOST_S))
        if cost is not None and cost.waits:
            settings = replace(settings, num_workers=_workers_that_wait(settings))
            launcher.share_out(source, settings)
        if cost is None or math.isinf(cost.own) or is_faster_in_processes(cost, settings):
            _tell(source, settings, "process", _in_words(cost))
            return "process", launcher, settings
    except BaseException:
        launcher.close()
        raise
    launcher.close()
    _tell(source, settings, "inline", _in_words(cost))
    return "inline", None, settings


def is_faster_in_processes(step: StepCost, settings: Settings) -> bool:
    """Whether worker processes finish a batch of such steps sooner than the calling thread."""
    rows, workers, cores = settings.batch_size, settings.num_workers, _native.available_cores()
    one = step.own + _ROW_S
    wake = _SLEEP_S if settings.waits_for_all else _ASYNC_SLEEP_S
    if workers < cores:
        wake = _SPIN_S
    turn = one + _SWITCH_S if workers > cores else one
    turns: float = rows / (workers if step.waits else min(workers, cores))
    if settings.waits_for_all:  # in async mode the workers go on with other envs while a batch is received
        turns = math.ceil(turns)
    in_processes = wake + turns * turn + rows * (_RECEIVED_ROW_S + step.info)
    return in_processes < rows * one


def _workers_that_wait(settings: Settings) -> int:
    """One per env, up to 64, and only as many as half of the free memory has room for."""
    wanted = min(settings.num_envs, _MOST_WAITING)
    affordable = free_bytes() // 2 // _WORKER_BYTES
    return max(settings.num_workers, min(wanted, affordable))


# ---- what the log says ---------------------------------------------------------------------------


def _tell(source: PythonSource, settings: Settings, backend: Backend, why: str) -> None:
    where = "the calling thread" if backend == "inline" else f"{settings.num_workers} worker processes"
    _log.info("%s: the %d envs run in %s: %s", source.id, settings.num_envs, where, why)


def _in_words(cost: StepCost | None) -> str:
    if cost is None:
        return "a trial of one failed, or it was slow to build or to step, or its methods are coroutines"
    took = f"a step took {cost.own * 1e6:,.0f} µs"
    if math.isinf(cost.own):
        took = f"a trial of {_MOST_S:g} s was too short for a step"
    return f"{took}, most of which was waiting" if cost.waits else took


# ---- kinds ---------------------------------------------------------------------------------------


def _are_heavy(source: PythonSource) -> bool:
    """Whether all factories say that a trial is not needed."""
    return all(isinstance(env.factory, EnvFactory) and env.factory.is_heavy for env in source.envs)


def _first_stands_for_all(source: PythonSource, settings: Settings) -> bool:
    """Whether env 0 can stand for all: the same code builds them.

    In sync mode their configurations may differ. In async mode they may not: a cheap env 0 would bring a slow one into
    the calling thread, where all others would wait for it.
    """
    first = source.envs[0]
    code, captured = _taken_apart(first.factory)
    for env in source.envs:
        if env.factory is first.factory and env.config is first.config:
            continue
        its_code, its_captured = _taken_apart(env.factory)
        if its_code != code:
            return False
        if not settings.waits_for_all and not _are_equal([its_captured, env.config], [captured, first.config]):
            return False
    return True


def _taken_apart(factory: Any) -> tuple[Any, list[Any]]:
    """The code that builds an env, and what it has captured: factories are often made in a loop."""
    captured: list[Any] = []
    while isinstance(factory, functools.partial | types.MethodType):
        if isinstance(factory, functools.partial):
            captured += [factory.args, factory.keywords]
            factory = factory.func
        else:
            captured.append(factory.__self__)
            factory = factory.__func__
    if isinstance(factory, types.FunctionType):
        return factory.__code__, [*captured, factory.__defaults__, factory.__kwdefaults__, *(factory.__closure__ or ())]
    if isinstance(factory, type | GymnasiumFactory):
        return factory, captured
    return type(factory), [*captured, factory]


def _are_equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # arrays have no single answer, and a user's class may do anything
        return False
