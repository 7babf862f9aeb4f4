"""Envs of other packages: stepmill beside Gymnasium's AsyncVectorEnv, EnvPool where it has them, and a plain loop.

Also where the CPU time of one step of a game goes, taken apart in one process (the part ``game-steps``).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import gymnasium

import stepmill
from benchmarks.python_contestants import BareLoop
from benchmarks.timing import Effort, Log, cpu_seconds, interleaved_with_cpu_time
from stepmill.errors import MissingPackageError
from stepmill.registry.records import find
from stepmill.tools.measuring.machine import cores
from stepmill.tools.measuring.peers import Workload, envpool_has, envpool_pool, stepmill_pool
from stepmill.tools.measuring.runners import SEED, Contestant, build_gymnasium
from stepmill.wrappers.episodes import NOOP

GRIDS = ("MiniGrid-Empty-8x8-v0",)
GAMES = ("Basic-v1", "VizdoomBasic-v1")  # preprocessed, four tics per step; and ViZDoom's own, one tic per step
SIZES = (8, 64)


def families(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Steps per second, all envs in each step, and the CPU time of a step. Envs without their package are left out."""
    out = []
    for env in GRIDS:
        try:
            stepmill.make_spec(env)
        except MissingPackageError as error:
            log(f"left out: {error}")
            continue
        make = functools.partial(gymnasium.make, env, disable_env_checker=True)
        # Missions are texts, for which AsyncVectorEnv's shared memory has no place.
        out += [_compare(env, n, make, effort, log, shared_memory=False) for n in SIZES]
    return out


def doom(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """The same for ViZDoom; the CPU time of a step includes that of the games."""
    if importlib.util.find_spec("vizdoom") is None:
        log("no vizdoom: left out")
        return []
    # Games that others start drop files into the working directory.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        cases = [(env, n) for env in GAMES for n in SIZES]
        return [_compare(env, n, functools.partial(_build, env), effort, log, backend="process") for env, n in cases]


def _compare(
    env: str, num_envs: int, make: Callable[[], Any], effort: Effort, log: Log, backend: str = "auto", **theirs: Any
) -> dict[str, Any]:
    """``make`` builds one env; ``theirs`` are arguments of AsyncVectorEnv."""
    log(f"{env}, {num_envs} envs")
    workload = Workload.of(env, num_envs)
    share = max(1, num_envs // cores())  # of a plain loop: as many envs as a worker of the pool has
    makers: dict[str, Callable[[], Contestant]] = {
        "stepmill": lambda: stepmill_pool(workload, backend=backend, start_timeout=600),
        "gymnasium_async": lambda: build_gymnasium("Async", [make] * num_envs, workload.actions(num_envs), **theirs),
        "loop": lambda: Contestant(BareLoop([make] * share), workload.actions(share)),
    }
    if envpool_has(workload):
        makers["envpool"] = lambda: envpool_pool(workload, min(num_envs, cores()))
    with contextlib.ExitStack() as made:
        runners = {name: made.enter_context(contextlib.closing(build())) for name, build in makers.items()}
        results = interleaved_with_cpu_time(runners, effort)
    return {"env": env, "num_envs": num_envs, "cores": cores(), **results}


def _build(env: str) -> Any:
    factory = find(env).factory
    assert factory is not None
    return factory()


# ---- the parts of one step -------------------------------------------------------------------------

CALLS = 400
ROUNDS = 5


def game_steps(effort: Effort, log: Log) -> dict[str, dict[str, float]]:
    """Microseconds of CPU time of each part, by game. Each part is called many times by itself."""
    rounds = 1 if effort.quick else ROUNDS
    found: dict[str, dict[str, float]] = {}
    if importlib.util.find_spec("ale_py") is not None:
        log("where a step of Pong-v5 goes")
        found["Pong-v5"] = _atari_step(rounds)
    if importlib.util.find_spec("vizdoom") is not None:
        log("where a step of Basic-v1 goes")
        found["Basic-v1"] = _doom_step(rounds)
    return found


def _atari_step(rounds: int) -> dict[str, float]:
    from stepmill.zoo.atari import AtariGame

    game = AtariGame("pong", reuse_memory=True)
    game.reset(seed=SEED)
    ale, frames = game.ale, game._console._frames
    grey = frames._pictures[0].copy()

    def four_frames() -> None:
        for _ in range(4):
            ale.act(NOOP)
        if ale.game_over():
            ale.reset_game()

    def two_screens() -> None:
        frames.take(1)
        frames.take(0)

    def two_grey_screens() -> None:
        ale.getScreenGrayscale(grey)
        ale.getScreenGrayscale(grey)

    def load() -> None:
        ale.loadROM(game._rom)

    return {
        "the emulator plays four frames": _cost(four_frames, rounds),
        "two screens as numbers of colours, made grey by our table": _cost(two_screens, rounds),
        "(two grey screens from the emulator instead)": _cost(two_grey_screens, rounds),
        "maximum, resizing by area, stack": _cost(lambda: frames.push(True), rounds),
        "info": _cost(lambda: game._info(0.0, False), rounds),
        "(once: loading the game)": _cost(load, rounds, calls=4),
    }


def _doom_step(rounds: int) -> dict[str, float]:
    factory: Any = find("Basic-v1").factory
    env = factory()
    env.reset(seed=SEED)
    screen = env._game.get_state().screen_buffer
    env.action_space.seed(SEED)
    actions = itertools.cycle([env.action_space.sample() for _ in range(64)])

    def step() -> None:
        if any(env.step(next(actions))[2:4]):
            env.reset()

    steps: list[float] = []
    for _ in range(rounds):
        before, began = cpu_seconds(), time.thread_time()
        for _ in range(CALLS):
            step()
        ours = time.thread_time() - began
        steps.append((cpu_seconds() - before - ours) / CALLS * 1e6)
    whole = _cost(step, rounds)
    drawing = _cost(lambda: env._screens.next(screen), rounds)
    env.close()
    return {
        "the game, a process of its own": statistics.median(steps),
        "resizing the screen by OpenCV, stack": drawing,
        "ViZDoom's controller, rewards, infos": whole - drawing,
    }


def _cost(function: Callable[[], Any], rounds: int, calls: int = CALLS) -> float:
    """Microseconds of this thread's CPU time per call; the median of some rounds."""
    samples = []
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(calls):
            function()
        samples.append((time.thread_time() - began) / calls * 1e6)
    return statistics.median(samples)
