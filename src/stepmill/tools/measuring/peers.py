"""The same envs in every library that is installed here: each through its public interface, with its own defaults.

All get the same actions, drawn before the clock starts, in the dtype of each one's action space.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import statistics
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self

import gymnasium
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import stepmill
from stepmill.errors import UnsupportedError
from stepmill.sources.find import find_source
from stepmill.sources.source import NativeSource
from stepmill.sources.world_source import WorldSource
from stepmill.system.guardian import die_with_parent
from stepmill.system.optional import SB3, TIANSHOU, Package, is_installed
from stepmill.tools.measuring.machine import cores, version
from stepmill.tools.measuring.runners import (
    ACTION_BATCHES,
    SEED,
    AsyncContestant,
    Contestant,
    build_gymnasium,
    build_sb3,
    build_tianshou,
    steps_per_second,
)

_ENVPOOL = Package("envpool", "envpool", "bench")
_TRIAL_S = 0.05  # for each number of EnvPool's threads
_PROCESSES_PER_CORE = 8  # beyond that a machine is busy with starting them, for minutes


@dataclass(frozen=True)
class Workload:
    """What is measured: a number of envs of one kind.

    Args:
        name: What the user calls it.
        task: What ``make`` takes.
        num_envs: How many.
        config: The env's options.
    """

    name: str
    task: Any
    num_envs: int
    config: dict[str, Any]

    @classmethod
    def of(cls, id: str, num_envs: int = 1) -> Self:
        """Envs of an id, with its defaults."""
        return cls(id, id, num_envs, {})

    @property
    def is_native(self) -> bool:
        """Whether we have the env in C++, so that the other libraries run another implementation of it."""
        return isinstance(self._source, NativeSource)

    @property
    def is_world(self) -> bool:
        """Whether the envs are a JAX world, which move together and are no objects."""
        return isinstance(self._source, WorldSource)

    @property
    def _source(self) -> Any:
        return find_source(self.task, 1, dict(self.config), None, "auto", None, None)

    def factories(self) -> list[Callable[[], gymnasium.Env[Any, Any]]] | None:
        """Functions that make the envs of Gymnasium: the official ones, or the Python envs that we run; else None."""
        factory = self._factory()
        return None if factory is None else [factory] * self.num_envs

    def _factory(self) -> Callable[[], gymnasium.Env[Any, Any]] | None:
        source = self._source
        if isinstance(source, NativeSource):
            if self.task not in gymnasium.registry:
                return None
            return partial(gymnasium.make, self.task, **self.config)
        if isinstance(source, WorldSource):
            return None
        env = source.call_factory(0)
        is_gymnasium = isinstance(env, gymnasium.Env)
        env.close()
        return partial(source.call_factory, 0) if is_gymnasium else None

    def actions(self, rows: int) -> list[Any]:
        """Batches of random actions for ``rows`` envs, the same on every call."""
        space = stepmill.make_spec(self.task, **self.config).action_space
        if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise UnsupportedError(f"{self.name} has actions of {space}, and an array of actions is needed here")
        batched = batch_space(space, rows)
        batched.seed(SEED)
        return [batched.sample() for _ in range(ACTION_BATCHES)]


@dataclass(frozen=True)
class Peer:
    """One way to step the envs of a workload.

    Args:
        name: The library, and which of its classes.
        package: Its name for pip.
        build: Makes the envs and resets them.
        process_per_env: Whether it starts a process for each env.
    """

    name: str
    package: str
    build: Callable[[], Contestant]
    process_per_env: bool = False

    @property
    def version(self) -> str | None:
        return version(self.package)

    @property
    def is_ours(self) -> bool:
        return self.package == "stepmill"

    def start(self) -> Contestant:
        """The envs, reset; without what another library writes meanwhile. Its processes end with this one."""
        if self.is_ours:
            return self.build()
        with _silenced(), _forking_children_that_end():
            return self.build()


def peers_of(workload: Workload, on_ray: bool = False) -> list[Peer]:
    """Returns our pools first, then the other libraries that are installed and have the env."""
    found = [Peer("stepmill", "stepmill", partial(stepmill_pool, workload))]
    if workload.num_envs > 1 and not workload.is_world:
        found.append(Peer("stepmill, async", "stepmill", partial(stepmill_pool, workload, workload.num_envs // 2)))
    if on_ray:
        found.append(Peer("stepmill on Ray", "stepmill", partial(stepmill_pool, workload, backend="ray")))
    if envpool_has(workload):
        found.append(Peer("EnvPool", "envpool", partial(_best_envpool, workload)))
    factories = workload.factories()
    if factories is None:
        return found
    envs = factories, workload.actions(workload.num_envs)
    for kind in ("Sync", "Async"):
        build = partial(build_gymnasium, kind, *envs)
        found.append(Peer(f"Gymnasium {kind}VectorEnv", "gymnasium", build, process_per_env=kind == "Async"))
    if is_installed(SB3):
        for kind in ("Dummy", "Subproc"):
            build = partial(build_sb3, kind, *envs)
            found.append(Peer(f"SB3 {kind}VecEnv", "stable-baselines3", build, process_per_env=kind == "Subproc"))
    if is_installed(TIANSHOU):
        build = partial(build_tianshou, *envs)
        found.append(Peer("Tianshou ShmemVectorEnv", "tianshou", build, process_per_env=True))
    return found


def most_processes() -> int:
    """Up to how many envs the libraries take part that start a process for each."""
    return _PROCESSES_PER_CORE * cores()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the warnings and notices of libraries that are only measured."""
    level, before = gymnasium.logger.min_level, logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gymnasium.logger.min_level = gymnasium.logger.ERROR
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            gymnasium.logger.min_level = level
            logging.disable(before)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Drops what is written to stderr, also by libraries in C and by processes that are started meanwhile.

    MuJoCo prints a warning for each env that is built, so 64 of them.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


_forker: int | None = None  # who is about to fork; None: children may live as long as they like


@contextlib.contextmanager
def _forking_children_that_end() -> Iterator[None]:
    """The kernel ends the processes that are forked meanwhile when this one dies: the libraries that fork them do that
    only if their program ends in peace. After a failure they end now: a library would wait for those that are stuck.
    """
    global _forker
    _watch_forks()
    before = multiprocessing.active_children()
    _forker = os.getpid()
    try:
        yield
    except BaseException:
        for child in multiprocessing.active_children():
            if child not in before:
                child.kill()
        raise
    finally:
        _forker = None


@cache
def _watch_forks() -> None:
    """Once: Python has no way to undo it."""
    os.register_at_fork(before=_note_forker, after_in_child=_end_with_forker)


def _note_forker() -> None:
    global _forker
    if _forker is not None:  # in a child, which may fork too, it is that child
        _forker = os.getpid()


def _end_with_forker() -> None:
    if _forker is not None:
        die_with_parent(_forker)


def stepmill_pool(workload: Workload, batch_size: int | None = None, **settings: Any) -> Contestant:
    """Our pool, sync unless it has a ``batch_size``; ``settings`` are those of ``make``."""
    arguments = {"num_envs": workload.num_envs, "batch_size": batch_size, "seed": SEED, **settings}
    pool = stepmill.make(workload.task, **arguments, **workload.config)
    kind = Contestant if batch_size is None else AsyncContestant
    return kind(pool, workload.actions(batch_size or workload.num_envs), pool.config.get("num_threads"))


def envpool_has(workload: Workload) -> bool:
    """Whether EnvPool is installed, and has the env, or may have it: one that is broken says so when it is used."""
    if not is_installed(_ENVPOOL) or workload.config or not isinstance(workload.task, str):
        return False
    try:
        import envpool
    except Exception:  # whatever a broken package raises
        return True
    return workload.task in envpool.list_all_envs()


def _best_envpool(workload: Workload) -> Contestant:
    counts = {min(count, workload.num_envs) for count in (1, cores(), 2 * cores())}
    return envpool_pool(workload, best_threads(workload, sorted(counts), _TRIAL_S))


def best_threads(
    workload: Workload, counts: Sequence[int], seconds: float, batch_size: int | None = None, rounds: int = 1
) -> int:
    """Which of these numbers of threads is best for EnvPool: its default is as many as envs."""
    rates: dict[int, list[float]] = {count: [] for count in counts}
    for _ in range(rounds if len(counts) > 1 else 0):
        for count in counts:
            contestant = envpool_pool(workload, count, batch_size)
            rates[count].append(steps_per_second(contestant, seconds))
            contestant.close()
    return max(counts, key=lambda count: statistics.median(rates[count] or [0]))


def envpool_pool(workload: Workload, num_threads: int, batch_size: int | None = None) -> Contestant:
    """EnvPool's pool, sync unless it has a ``batch_size``."""
    import envpool

    given = {} if batch_size is None else {"batch_size": batch_size}
    pool = envpool.make_gymnasium(
        workload.task, num_envs=workload.num_envs, num_threads=num_threads, seed=SEED, **given
    )
    dtype = pool.spec.action_array_spec["action"].dtype
    actions = [action.astype(dtype) for action in workload.actions(batch_size or workload.num_envs)]
    kind = Contestant if batch_size is None else AsyncContestant
    return kind(pool, actions, num_threads)


def gymnasium_envs(kind: str, workload: Workload) -> Contestant:
    """Gymnasium's ``SyncVectorEnv`` or ``AsyncVectorEnv`` of a workload that has factories."""
    return build_gymnasium(kind, workload.factories() or [], workload.actions(workload.num_envs))
