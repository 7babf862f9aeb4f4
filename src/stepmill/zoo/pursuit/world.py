"""The world of Pursuit: two runners, two gates, and a hunter that the world itself plays.

A step, in this order:

1. the runners move, by one step up, down, left or right, or stay; walls hold them in the field;
2. a runner in an open gate is out, and the gate closes behind it: the other one needs the other gate;
3. the hunter goes towards the nearest runner, now and then it hesitates; a runner it reaches is caught.

It is slower than they are, and follows only one of them at a time: they do best together.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepmill.zoo.canvas import Point

__all__ = ["MOVES", "NUMBERS", "RUNNERS", "Fate", "PursuitWorld", "Start", "draw_start", "observation_bounds"]

RUNNERS = 2
NUMBERS = 15  # in an observation of one runner
MOVES: list[Point] = [(0.0, 0.0), (0.0, 1.0), (0.0, -1.0), (-1.0, 0.0), (1.0, 0.0)]  # stay, up, down, left, right
STRIDE = 0.08  # of a runner, in a field that is 2 wide
HUNTER_STRIDE = 0.04
HESITATION = 0.2  # the chance that the hunter stays where it is
GATE_RADIUS = 0.15
CATCH_RADIUS = 0.1
STEP_COST = 0.01


class Fate(IntEnum):
    """What became of a runner."""

    IN_PLAY = 0
    OUT = 1
    CAUGHT = 2


class Start(NamedTuple):
    """Who begins where."""

    runners: tuple[Point, Point]
    gates: tuple[Point, Point]
    hunter: Point


def draw_start(random: np.random.Generator) -> Start:
    """Gates, hunter and runners well apart from each other."""
    places: list[Point] = []
    for least in (0.0, 0.8, 0.5, 0.5, 0.5):
        while True:
            place = tuple(random.uniform(-0.85, 0.85, 2).tolist())
            if all(math.dist(place, other) >= least for other in places):
                break
        places.append(place)
    first_gate, second_gate, hunter, first, second = places
    return Start((first, second), (first_gate, second_gate), hunter)


class PursuitWorld:
    """One episode. It is over when no runner is in play, or out of time."""

    def __init__(self, start: Start, random: np.random.Generator, time_limit: int) -> None:
        self.runners = list(start.runners)
        self.gates = start.gates
        self.hunter = start.hunter
        self.fates = [Fate.IN_PLAY] * RUNNERS
        self.gate_open = [True] * len(start.gates)
        self.steps = 0
        self.paths = [[place] for place in (*self.runners, self.hunter)]  # for the picture
        self._random = random
        self._time_limit = time_limit

    def step(self, moves: list[int]) -> list[float]:
        """Takes a move for each runner, those that left included, and returns a reward for each.

        A runner in play pays a little for the step; being out gives it 1, being caught costs 1.
        """
        rewards = [-STEP_COST if self.in_play(i) else 0.0 for i in range(RUNNERS)]
        self._move_runners(moves)
        for i in self._let_out():
            rewards[i] += 1
        self._move_hunter()
        for i in self._catch():
            rewards[i] -= 1
        self.steps += 1
        for path, place in zip(self.paths, (*self.runners, self.hunter), strict=True):
            path.append(place)
        return rewards

    def _move_runners(self, moves: list[int]) -> None:
        for i, move in enumerate(moves):
            if self.in_play(i):
                x, y = (place + STRIDE * way for place, way in zip(self.runners[i], MOVES[move], strict=True))
                self.runners[i] = (min(max(x, -1.0), 1.0), min(max(y, -1.0), 1.0))

    def _let_out(self) -> list[int]:
        """Of two in one gate, the first runner is out."""
        left = []
        for i, runner in enumerate(self.runners):
            for gate, place in enumerate(self.gates):
                if self.in_play(i) and self.gate_open[gate] and math.dist(runner, place) <= GATE_RADIUS:
                    self.fates[i] = Fate.OUT
                    self.gate_open[gate] = False
                    left.append(i)
        return left

    def _move_hunter(self) -> None:
        hesitates = self._random.random() < HESITATION  # drawn in every step, so that chance does not depend on moves
        prey = [runner for i, runner in enumerate(self.runners) if self.in_play(i)]
        if hesitates or not prey:
            return
        (x, y), goal = self.hunter, min(prey, key=lambda runner: math.dist(runner, self.hunter))
        distance = math.dist(goal, self.hunter)
        share = 1.0 if distance <= HUNTER_STRIDE else HUNTER_STRIDE / distance
        self.hunter = (x + share * (goal[0] - x), y + share * (goal[1] - y))

    def _catch(self) -> list[int]:
        caught = [
            i
            for i, runner in enumerate(self.runners)
            if self.in_play(i) and math.dist(runner, self.hunter) <= CATCH_RADIUS
        ]
        for i in caught:
            self.fates[i] = Fate.CAUGHT
        return caught

    # ---- how it stands -----------------------------------------------------------------------

    def in_play(self, runner: int) -> bool:
        """Neither out nor caught."""
        return self.fates[runner] is Fate.IN_PLAY

    @property
    def out_of_time(self) -> bool:
        """The last step was taken; who is still in play is cut off."""
        return self.steps >= self._time_limit

    @property
    def over(self) -> bool:
        """No step follows."""
        return self.out_of_time or not any(map(self.in_play, range(RUNNERS)))

    @property
    def succeeded(self) -> bool:
        """Both runners are out."""
        return all(fate is Fate.OUT for fate in self.fates)

    @property
    def time_left(self) -> float:
        """From 1 at the start to 0."""
        return 1 - self.steps / self._time_limit

    def observe(self, runner: int) -> NDArray[np.float32]:
        """What a runner sees; places of others as seen from its own.

        Its place (2) and whether it is in play; the other runner (2) and whether that is in play; the hunter (2); each
        gate (2) and whether it is open; the time left. 15 numbers.
        """
        x, y = self.runners[runner]
        mate = 1 - runner

        def away(place: Point) -> Point:
            return place[0] - x, place[1] - y

        numbers: list[float] = [x, y, self.in_play(runner)]
        numbers += [*away(self.runners[mate]), self.in_play(mate), *away(self.hunter)]
        for gate, is_open in zip(self.gates, self.gate_open, strict=True):
            numbers += [*away(gate), is_open]
        return np.array([*numbers, self.time_left], np.float32)


def observation_bounds() -> tuple[list[float], list[float]]:
    """The lowest and the highest value of each number of an observation."""
    others = [[2.0, 2.0, 1.0], [2.0, 2.0], [2.0, 2.0, 1.0], [2.0, 2.0, 1.0]]
    high = [1.0, 1.0, 1.0, *(number for other in others for number in other), 1.0]
    flags = {2, 5, 10, 13, 14}
    return [0.0 if i in flags else -bound for i, bound in enumerate(high)], high
