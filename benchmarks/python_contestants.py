"""The libraries that run Python envs, and plain loops: each gets the same factories and the same actions.

They are built by ``stepmill.tools.measuring.runners``. Each library is imported by the function that needs it, ours
too, so that the process of one contestant loads no other.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.python_envs import Case
from stepmill.tools.measuring.runners import (
    ACTION_BATCHES,
    SEED,
    AsyncContestant,
    Contestant,
    build_gymnasium,
    build_sb3,
    build_tianshou,
)


def build(name: str, case: Case) -> Contestant | MeetingLoops:
    """The contestant, after its first batch."""
    return BUILDERS[name](case)


def draw_actions(rows: int) -> list[np.ndarray]:
    """Random actions, the same for all: every env here has two."""
    generator = np.random.default_rng(SEED)
    return [generator.integers(0, 2, rows) for _ in range(ACTION_BATCHES)]


# ---- stepmill --------------------------------------------------------------------------------------


def stepmill_pool(backend: str, case: Case) -> Contestant:
    import stepmill

    pool = stepmill.make(
        case.factories(), num_envs=case.num_envs, batch_size=case.batch_size, seed=SEED, backend=backend
    )
    kind = Contestant if case.batch_size is None else AsyncContestant
    return kind(pool, draw_actions(case.batch_size or case.num_envs))


def stepmill_async(case: Case) -> Contestant:
    """The default pool, a batch of half of the envs at a time."""
    return stepmill_pool("auto", replace(case, batch_size=max(1, case.num_envs // 2)))


# ---- bare loops ------------------------------------------------------------------------------------


class BareLoop:
    """The envs one after the other in one process, and nothing else: what one core can do."""

    def __init__(self, factories: Sequence[Callable[[], Any]]) -> None:
        self._envs = [factory() for factory in factories]

    def reset(self) -> None:
        for env in self._envs:
            env.reset()

    def step(self, actions: np.ndarray) -> None:
        for env, action in zip(self._envs, actions, strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    def close(self) -> None:
        for env in self._envs:
            env.close()


def bare_loop(case: Case) -> Contestant:
    return Contestant(BareLoop(case.factories()), draw_actions(case.num_envs))


class MeetingLoops:
    """Bare loops in a process each, over the envs that a worker of the pool would have, that meet after each batch.

    What a sync pool could give at most: nothing but the envs is stepped, but all wait for the last. How they wait, and
    that it costs next to nothing, is in ``barrier.h``. This process is one of the loops.
    """

    envs = None  # no pool that could tell its backend

    def __init__(self, case: Case) -> None:
        self.rows_per_call = case.num_envs
        self._loops = case.loops
        library = ctypes.CDLL(case.barrier)
        library.barrier_meet.argtypes = (ctypes.c_void_p, ctypes.c_uint32)
        self._meet = library.barrier_meet
        memory = mmap.mmap(-1, mmap.PAGESIZE)  # zeroed, and shared with the processes forked below
        self._barrier = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._calls = ctypes.c_int64.from_buffer(memory, library.barrier_bytes())
        self._members = []
        for index in range(1, self._loops):
            if (pid := os.fork()) == 0:
                try:
                    self._follow(case, index)
                finally:
                    os._exit(0)
            self._members.append(pid)
        self._own = self._loop(case, 0)
        self.run(1)

    def run(self, calls: int) -> None:
        self._calls.value = calls
        self._meet(self._barrier, self._loops)
        self._own(calls)

    def close(self) -> None:
        self._calls.value = 0
        self._meet(self._barrier, self._loops)
        for pid in self._members:
            os.waitpid(pid, 0)

    def _follow(self, case: Case, index: int) -> None:
        own = self._loop(case, index)
        while True:
            self._meet(self._barrier, self._loops)
            if self._calls.value == 0:
                return
            own(self._calls.value)

    def _loop(self, case: Case, index: int) -> Callable[[int], None]:
        """Steps the envs of one loop this many times."""
        first, last = (case.num_envs * i // self._loops for i in (index, index + 1))
        envs = BareLoop(case.factories()[first:last])
        envs.reset()
        batches = itertools.cycle([actions[first:last] for actions in draw_actions(case.num_envs)])

        def run(calls: int) -> None:
            for actions in itertools.islice(batches, calls):
                envs.step(actions)
                self._meet(self._barrier, self._loops)

        return run


# ---- the others ------------------------------------------------------------------------------------


def theirs(build: Callable[..., Contestant], case: Case) -> Contestant:
    return build(case.factories(), draw_actions(case.num_envs))


def tianshou(case: Case) -> Contestant:
    if case.batch_size is None:
        return theirs(build_tianshou, case)
    from tianshou.env import ShmemVectorEnv

    envs = ShmemVectorEnv(case.factories(), wait_num=case.batch_size)
    return TianshouAsync(envs, draw_actions(case.num_envs), case.batch_size)


class TianshouAsync(Contestant):
    """Waits for a batch of the envs, and gets all that are ready by then; for envs whose episodes never end."""

    def __init__(self, envs: Any, actions: list[np.ndarray], batch_size: int) -> None:
        super().__init__(envs, actions)
        self.rows_per_call = batch_size
        self._ids = list(range(len(envs)))
        self._owed = 0

    def run(self, calls: int) -> None:
        self._owed += calls * self.rows_per_call
        while self._owed > 0:
            result = self.envs.step(next(self._actions)[: len(self._ids)], self._ids)
            self._ids = [info["env_id"] for info in result[4]]
            self._owed -= len(self._ids)


BUILDERS: dict[str, Callable[[Case], Contestant | MeetingLoops]] = {
    "bare": bare_loop,
    "meeting": MeetingLoops,
    "async": stepmill_async,
    "auto": partial(stepmill_pool, "auto"),
    "inline": partial(stepmill_pool, "inline"),
    "process": partial(stepmill_pool, "process"),
    "gymnasium_sync": partial(theirs, partial(build_gymnasium, "Sync")),
    "gymnasium_async": partial(theirs, partial(build_gymnasium, "Async")),
    "sb3": partial(theirs, partial(build_sb3, "Subproc")),
    "tianshou": tianshou,
}
