"""Where the CPU time of a step of a game goes: an Atari game and a Doom scenario, taken apart in one process.

CPU time, as it does not depend on what else the machine does. Each part is called many times by itself.
"""

from __future__ import annotations

import importlib.util
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cpu_time import cpu_seconds
from benchmarks.runners import SEED
from benchmarks.timing import Effort
from stepmill.registry.records import find

Log = Callable[[str], None]

CALLS = 400
ROUNDS = 5


def game_steps(effort: Effort, log: Log) -> dict[str, dict[str, float]]:
    """Microseconds of each part, by game."""
    rounds = 1 if effort.quick else ROUNDS
    found: dict[str, dict[str, float]] = {}
    if importlib.util.find_spec("ale_py") is not None:
        log("where a step of Pong-v5 goes")
        found["Pong-v5"] = _atari(rounds)
    if importlib.util.find_spec("vizdoom") is not None:
        log("where a step of Basic-v1 goes")
        found["Basic-v1"] = _doom(rounds)
    return found


def _atari(rounds: int) -> dict[str, float]:
    from stepmill.zoo.atari import AtariGame

    game = AtariGame("pong", reuse_memory=True)
    game.reset(seed=SEED)
    ale, frames, noop = game.ale, game._frames, game._noop
    grey = frames._pictures[0].copy()

    def four_frames() -> None:
        for _ in range(4):
            ale.act(noop)
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


def _doom(rounds: int) -> dict[str, float]:
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
