"""Atari games: stepmill beside EnvPool, ALE's own vector env, Gymnasium's, and plain loops around the emulator.

All play with EnvPool's defaults: 4 frames of 84 x 84, skip 4, up to 30 no-ops, FIRE at the start, no sticky actions.
Gymnasium's vector env runs its own wrappers, without the FIRE.
"""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium

from benchmarks import bare
from benchmarks.python_contestants import BareLoop, MeetingLoops
from benchmarks.timing import Effort, Log, interleaved_with_cpu_time
from stepmill.tools.measuring.machine import cores
from stepmill.tools.measuring.peers import Workload, envpool_has, envpool_pool, stepmill_pool
from stepmill.tools.measuring.runners import SEED, AsyncContestant, Contestant
from stepmill.wrappers.episodes import FIRE, NOOP

GAMES = ("Pong", "Breakout", "Seaquest")
SYNC, ASYNC = (8, 64), ((128, 64),)
START = ("Pong", 64)


def atari(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second, and the CPU time of a step in all processes and threads of a contestant."""
    sizes = [*((n, None) for n in SYNC), *ASYNC]
    return [_compare(game, n, batch_size, effort, log) for game in GAMES for n, batch_size in sizes]


def _compare(game: str, num_envs: int, batch_size: int | None, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"{game}, {num_envs} envs" + (f", batches of {batch_size}" if batch_size else ""))
    id = f"{game}-v5"
    workload = Workload.of(id, num_envs)
    runners: dict[str, Any] = {}
    try:
        if bare.available() and batch_size is None:  # first: they fork, and threads of others would not survive it
            runners["meeting"] = AtariLoops(AtariCase(game, num_envs))
        runners["stepmill"] = stepmill_pool(workload, batch_size)
        if envpool_has(workload):
            runners["envpool"] = envpool_pool(workload, min(batch_size or num_envs, cores()), batch_size)
        runners["ale"] = _ale_vector_env(game, num_envs, batch_size)
        if batch_size is None:
            runners["gymnasium_async"] = _gymnasium_async(game, num_envs)
        row: dict[str, Any] = {"env": id, "num_envs": num_envs, "batch_size": batch_size or num_envs}
        return row | interleaved_with_cpu_time(runners, effort)
    finally:
        for runner in runners.values():
            runner.close()


# ---- contestants -----------------------------------------------------------------------------------


def _ale_vector_env(game: str, num_envs: int, batch_size: int | None) -> Contestant:
    _register()
    given: dict[str, Any] = {} if batch_size is None else {"batch_size": batch_size}
    envs = gymnasium.make_vec(
        f"ALE/{game}-v5",
        num_envs=num_envs,
        vectorization_mode="vector_entry_point",
        num_threads=min(batch_size or num_envs, cores()),
        reward_clipping=False,
        repeat_action_probability=0.0,
        **given,
    )
    actions = Workload.of(f"{game}-v5").actions(batch_size or num_envs)
    return Contestant(envs, actions, cores()) if batch_size is None else _AleAsync(envs, actions, cores())


class _AleAsync(AsyncContestant):
    """ALE's vector env returns the ids of a batch, and takes the actions of those that it returned last."""

    def __init__(self, envs: Any, actions: list[Any], num_threads: int) -> None:
        self.envs, self.num_threads, self.rows_per_call = envs, num_threads, len(actions[0])
        self._actions = itertools.cycle(actions)
        envs.reset()

    def run(self, calls: int) -> None:
        send, recv = self.envs.send, self.envs.recv
        for action in itertools.islice(self._actions, calls):
            send(action)
            recv()


def _gymnasium_async(game: str, num_envs: int) -> Contestant:
    envs = gymnasium.vector.AsyncVectorEnv([partial(_wrapped, game)] * num_envs, context="fork")
    return Contestant(envs, Workload.of(f"{game}-v5").actions(num_envs))


def _wrapped(game: str) -> Any:
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    _register()
    env = gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    return FrameStackObservation(AtariPreprocessing(env), 4)


def _register() -> None:
    import ale_py

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


class BareGame:
    """The emulator and our frames, and nothing else: no infos, no lives.

    It plays what a pool plays: no-ops and FIRE at the start of a game, which takes the place of the step after an end.
    """

    def __init__(self, game: str) -> None:
        from stepmill.zoo.atari import AtariGame

        game_env = AtariGame(game.lower(), reuse_memory=True)
        game_env.reset(seed=SEED)
        console = game_env._console
        self._ale, self._frames, self._actions = console.ale, console._frames, console.actions
        self._fires = console.has_fire
        self._random, self._most_noops = random.Random(), game_env.options.noop_max
        self._is_over = False

    def reset(self) -> None:
        act = self._ale.act
        self._ale.reset_game()
        for _ in range(self._random.randint(1, self._most_noops)):
            act(NOOP)
        self._frames.fill()
        for _ in range(4 * self._fires):
            act(FIRE)
        self._is_over = False

    def step(self, action: int) -> tuple[Any, float, bool, bool, None]:
        act, frames = self._ale.act, self._frames
        if self._is_over:
            self.reset()
            return frames.stack, 0.0, False, False, None
        button = self._actions[action]
        reward = act(button) + act(button) + act(button)
        frames.take(1)
        reward += act(button)
        frames.take(0)
        frames.push(True)
        self._is_over = self._ale.game_over()
        return frames.stack, reward, False, False, None

    def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True)
class AtariCase:
    """What ``MeetingLoops`` needs to know."""

    game: str
    num_envs: int

    @property
    def loops(self) -> int:
        return min(cores(), self.num_envs)

    @property
    def barrier(self) -> str | None:
        return bare.barrier_library()


class AtariLoops(MeetingLoops):
    """A bare loop in a process per core; they meet after each batch."""

    def _loop(self, case: Any, index: int) -> Callable[[int], None]:
        first, last = (case.num_envs * i // self._loops for i in (index, index + 1))
        envs = BareLoop([partial(BareGame, case.game)] * (last - first))
        envs.reset()
        drawn = Workload.of(f"{case.game}-v5").actions(case.num_envs)
        batches = itertools.cycle([actions[first:last] for actions in drawn])

        def run(calls: int) -> None:
            for actions in itertools.islice(batches, calls):
                envs.step(actions)
                self._meet(self._barrier, self._loops)

        return run


# ---- start-up --------------------------------------------------------------------------------------


def start(effort: Effort, log: Log) -> dict[str, Any]:
    """Seconds from the first import to the first batch of 64 games, in a fresh interpreter."""
    game, count = START
    out: dict[str, Any] = {}
    for name, code in STARTS.items():
        if name == "envpool" and not envpool_has(Workload.of(f"{game}-v5")):
            continue
        log(f"start-up of {count} {game}, {name}")
        program = START_PROGRAM.format(make=code.format(game=game, n=count))
        samples = []
        for _ in range(1 if effort.quick else 3):
            command = [sys.executable, "-W", "ignore", "-c", program]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            samples.append(float(output.split()[-1]))
        out[name] = {"seconds": statistics.median(samples), "samples": samples}
    return out


STARTS = {
    "stepmill": "import stepmill; envs = stepmill.make('{game}-v5', num_envs={n})",
    "envpool": "import envpool; envs = envpool.make_gymnasium('{game}-v5', num_envs={n}, num_threads=len(cores))",
    "ale": "import gymnasium, ale_py; envs = gymnasium.make_vec('ALE/{game}-v5', num_envs={n}, "
    "vectorization_mode='vector_entry_point')",
}
START_PROGRAM = """
import os, time
cores = os.sched_getaffinity(0)
begin = time.perf_counter()
{make}
envs.reset()
print(time.perf_counter() - begin)
"""
