"""The same envs in every library that is installed here: each with its own defaults and the same actions."""

from __future__ import annotations

import contextlib
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import stepmill
from stepmill.errors import UnsupportedError
from stepmill.measuring.machine import cores, version
from stepmill.measuring.runners import AsyncContestant, Contestant, TianshouContestant
from stepmill.measuring.timing import steps_per_second
from stepmill.optional import SB3, TIANSHOU, Package, is_installed
from stepmill.pool.find_source import find_source
from stepmill.pool.source import NativeSource

__all__ = ["Peer", "Subject", "peers_of", "quiet"]

_ENVPOOL = Package("envpool", "envpool", "bench")
SEED = 42
_ACTION_BATCHES = 32
_TRIAL_S = 0.05  # for each number of EnvPool's threads


@dataclass(frozen=True)
class Subject:
    """What is measured: so many envs of one kind.

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

    @property
    def is_native(self) -> bool:
        """Whether we have the env in C++, so that the other libraries run another implementation of it."""
        return isinstance(self._source, NativeSource)

    @property
    def _source(self) -> Any:
        return find_source(self.task, 1, dict(self.config), None, "auto", None, None)

    def factory(self) -> Callable[[], gymnasium.Env[Any, Any]] | None:
        """A function that makes one env of Gymnasium: the official one, or the Python env that we run; else None."""
        source = self._source
        if isinstance(source, NativeSource):
            if self.task not in gymnasium.registry:
                return None
            return partial(gymnasium.make, self.task, **self.config)
        env = source.call_factory(0)
        is_gymnasium = isinstance(env, gymnasium.Env)
        env.close()
        return partial(source.call_factory, 0) if is_gymnasium else None

    def actions(self, rows: int) -> list[Any]:
        """Random actions for so many envs, the same on every call."""
        space = stepmill.make_spec(self.task, **self.config).action_space
        if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            raise UnsupportedError(f"{self.name} has actions of {space}, and an array of actions is needed here")
        batched = batch_space(space, rows)
        batched.seed(SEED)
        return [batched.sample() for _ in range(_ACTION_BATCHES)]


@dataclass(frozen=True)
class Peer:
    """One way to step the envs of a subject.

    Args:
        name: The library, and which of its classes.
        package: Its name for pip.
        build: Makes the envs and resets them.
    """

    name: str
    package: str
    build: Callable[[], Contestant]

    @property
    def version(self) -> str | None:
        return version(self.package)

    @property
    def is_ours(self) -> bool:
        return self.package == "stepmill"

    def start(self) -> Contestant:
        """The envs, reset; without what another library writes meanwhile."""
        with contextlib.nullcontext() if self.is_ours else _silenced():
            return self.build()


def peers_of(subject: Subject) -> list[Peer]:
    """Ours first, then those of the other libraries that are installed and have the env."""
    found = [Peer("stepmill", "stepmill", partial(_stepmill, subject))]
    if subject.num_envs > 1:
        found.append(Peer("stepmill, async", "stepmill", partial(_stepmill, subject, subject.num_envs // 2)))
    if is_installed(_ENVPOOL) and _envpool_has(subject):
        found.append(Peer("EnvPool", "envpool", partial(_envpool, subject)))
    factory = subject.factory()
    if factory is None:
        return found
    factories = [factory] * subject.num_envs
    found.append(Peer("Gymnasium SyncVectorEnv", "gymnasium", partial(_gymnasium, "Sync", subject, factories)))
    found.append(Peer("Gymnasium AsyncVectorEnv", "gymnasium", partial(_gymnasium, "Async", subject, factories)))
    if is_installed(SB3):
        found.append(Peer("SB3 DummyVecEnv", "stable-baselines3", partial(_sb3, "Dummy", subject, factories)))
        found.append(Peer("SB3 SubprocVecEnv", "stable-baselines3", partial(_sb3, "Subproc", subject, factories)))
    if is_installed(TIANSHOU):
        found.append(Peer("Tianshou ShmemVectorEnv", "tianshou", partial(_tianshou, subject, factories)))
    return found


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


def _stepmill(subject: Subject, batch_size: int | None = None) -> Contestant:
    pool = stepmill.make(subject.task, num_envs=subject.num_envs, batch_size=batch_size, seed=SEED, **subject.config)
    kind = Contestant if batch_size is None else AsyncContestant
    return kind(pool, subject.actions(batch_size or subject.num_envs))


def _envpool_has(subject: Subject) -> bool:
    import envpool

    return subject.is_native and not subject.config and subject.task in envpool.list_all_envs()


def _envpool(subject: Subject) -> Contestant:
    """With the number of threads that is best here: its default is as many as envs."""
    import envpool

    best: tuple[float, int] = (0.0, 1)
    for threads in sorted({1, cores(), 2 * cores()}):
        contestant = _envpool_with(envpool, subject, min(threads, subject.num_envs))
        best = max(best, (steps_per_second(contestant, _TRIAL_S), threads))
        contestant.close()
    return _envpool_with(envpool, subject, min(best[1], subject.num_envs))


def _envpool_with(envpool: Any, subject: Subject, threads: int) -> Contestant:
    pool = envpool.make_gymnasium(subject.task, num_envs=subject.num_envs, num_threads=threads, seed=SEED)
    dtype = pool.spec.action_array_spec["action"].dtype
    return Contestant(pool, [action.astype(dtype) for action in subject.actions(subject.num_envs)])


def _gymnasium(kind: str, subject: Subject, factories: list[Any]) -> Contestant:
    envs = getattr(gymnasium.vector, f"{kind}VectorEnv")(factories)
    return Contestant(envs, subject.actions(subject.num_envs))


def _sb3(kind: str, subject: Subject, factories: list[Any]) -> Contestant:
    from stable_baselines3.common import vec_env

    # By default each of its processes would import torch again.
    given = {"start_method": "fork"} if kind == "Subproc" else {}
    return Contestant(getattr(vec_env, f"{kind}VecEnv")(factories, **given), subject.actions(subject.num_envs))


def _tianshou(subject: Subject, factories: list[Any]) -> Contestant:
    from tianshou.env import ShmemVectorEnv

    return TianshouContestant(ShmemVectorEnv(factories), subject.actions(subject.num_envs))
