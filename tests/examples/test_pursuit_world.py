"""The world of Pursuit without an env: what runners and hunter do, and how it looks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from pursuit import env as pursuit
from pursuit.env import Fate, Point, PursuitWorld, Start, draw, draw_start

STAY, UP, DOWN, LEFT, RIGHT = range(5)
FAR_GATES = ((-0.9, 0.9), (0.9, 0.9))
CORNER = (-0.9, -0.9)


class Chance:
    """Draws the same number always: 0 makes the hunter hesitate, 1 makes it go."""

    def __init__(self, number: float) -> None:
        self._number = number

    def random(self) -> float:
        return self._number


HESITATES, GOES = Chance(0.0), Chance(1.0)


def world_of(
    *runners: Point,
    gates: tuple[Point, Point] = FAR_GATES,
    hunter: Point = CORNER,
    chance: Any = HESITATES,
    time_limit: int = 100,
) -> PursuitWorld:
    first, second = runners
    return PursuitWorld(Start((first, second), gates, hunter), chance, time_limit)


@pytest.mark.parametrize(
    ("move", "place"), [(STAY, (0, 0)), (UP, (0, 0.08)), (DOWN, (0, -0.08)), (LEFT, (-0.08, 0)), (RIGHT, (0.08, 0))]
)
def test_a_move_is_one_stride(move: int, place: Point) -> None:
    world = world_of((0.0, 0.0), (0.0, 0.0))
    assert world.step([move, STAY]) == [-0.01, -0.01]
    assert world.runners == [pytest.approx(place), (0, 0)]
    world.step([STAY, move])
    assert world.runners == [pytest.approx(place)] * 2


def test_walls_hold_the_runners() -> None:
    world = world_of((0.97, -0.99), (0.0, 0.95))
    world.step([RIGHT, UP])
    world.step([DOWN, STAY])
    assert world.runners == [(1.0, -1.0), (0.0, 1.0)]


def test_a_runner_in_a_gate_is_out_and_the_gate_closes() -> None:
    world = world_of((-0.3, 0.0), (-0.5, 0.3), gates=((-0.5, 0.0), (0.5, -0.5)))
    assert world.step([LEFT, DOWN]) == pytest.approx([0.99, -0.01])
    assert world.fates == [Fate.OUT, Fate.IN_PLAY]
    assert world.gate_open == [False, True]
    assert world.step([RIGHT, DOWN]) == pytest.approx([0.0, -0.01]), "that gate is closed for the other one"
    assert world.runners[0] == pytest.approx((-0.38, 0.0)), "who is out moves no more"
    assert not world.over


def test_of_two_in_one_gate_the_first_is_out() -> None:
    world = world_of((0.5, 0.0), (0.5, 0.0), gates=((0.5, 0.0), (-0.5, 0.0)))
    assert world.step([STAY, STAY]) == pytest.approx([0.99, -0.01])
    assert world.fates == [Fate.OUT, Fate.IN_PLAY]


def test_both_out_is_success() -> None:
    world = world_of((0.5, 0.0), (-0.5, 0.0), gates=((-0.5, 0.0), (0.5, 0.0)))
    assert world.step([STAY, STAY]) == pytest.approx([0.99, 0.99])
    assert (world.succeeded, world.over) == (True, True)


def test_the_hunter_goes_straight_to_the_nearest_runner() -> None:
    world = world_of((0.3, 0.4), (-0.6, 0.0), hunter=(0.0, 0.0), chance=GOES)
    world.step([STAY, STAY])
    assert world.hunter == pytest.approx((0.024, 0.032))


def test_the_hunter_hesitates() -> None:
    world = world_of((0.3, 0.4), (-0.6, 0.0), hunter=(0.0, 0.0), chance=HESITATES)
    world.step([STAY, STAY])
    assert world.hunter == (0.0, 0.0)


def test_the_hunter_does_not_run_past_a_runner() -> None:
    world = world_of((0.03, 0.0), (-0.6, 0.0), hunter=(0.0, 0.0), chance=GOES)
    world.step([STAY, STAY])
    assert world.hunter == (0.03, 0.0)


def test_a_caught_runner_is_out_of_play_and_the_hunter_turns_to_the_other() -> None:
    world = world_of((0.13, 0.0), (-0.6, 0.0), hunter=(0.0, 0.0), chance=GOES)
    assert world.step([STAY, STAY]) == pytest.approx([-1.01, -0.01])
    assert world.fates == [Fate.CAUGHT, Fate.IN_PLAY]
    assert world.step([LEFT, STAY]) == pytest.approx([0.0, -0.01])
    assert world.runners[0] == (0.13, 0.0)
    assert world.hunter == pytest.approx((0.0, 0.0)), "there and back"
    assert (world.over, world.succeeded) == (False, False)


def test_a_runner_that_walks_into_a_hunter_that_hesitates_is_caught_too() -> None:
    world = world_of((0.15, 0.0), (0.0, 0.15), hunter=(0.0, 0.0), chance=HESITATES)
    assert world.step([LEFT, DOWN]) == pytest.approx([-1.01, -1.01])
    assert (world.over, world.succeeded) == (True, False)


def test_a_runner_in_a_gate_is_safe() -> None:
    world = world_of((0.2, 0.0), (-0.9, 0.0), gates=((0.0, 0.0), (0.9, 0.9)), hunter=(0.12, 0.0), chance=GOES)
    assert world.step([LEFT, STAY]) == pytest.approx([0.99, -0.01])
    assert world.hunter == pytest.approx((0.08, 0.0)), "it is after the other one now"


def test_time_runs_out() -> None:
    world = world_of((0.0, 0.0), (0.5, 0.0), time_limit=4)
    left = []
    while not world.over:
        world.step([STAY, STAY])
        left.append(world.time_left)
    assert left == [0.75, 0.5, 0.25, 0.0]
    assert world.out_of_time
    assert world.fates == [Fate.IN_PLAY] * 2


def test_what_a_runner_sees() -> None:
    world = world_of((0.1, 0.2), (-0.5, 0.4), gates=((0.6, 0.2), (-0.4, -0.8)), hunter=(0.9, -0.1), time_limit=4)
    world.gate_open[1] = False
    world.fates[1] = Fate.CAUGHT
    own, mate, hunter = [0.1, 0.2, 1], [-0.6, 0.2, 0], [0.8, -0.3]
    assert world.observe(0) == pytest.approx([*own, *mate, *hunter, 0.5, 0, 1, -0.5, -1.0, 0, 1])
    own, mate, hunter = [-0.5, 0.4, 0], [0.6, -0.2, 1], [1.4, -0.5]
    assert world.observe(1) == pytest.approx([*own, *mate, *hunter, 1.1, -0.2, 1, 0.1, -1.2, 0, 1])


def test_at_the_start_all_are_well_apart() -> None:
    generator = np.random.default_rng(0)
    starts = [draw_start(generator) for _ in range(100)]
    assert len(set(starts)) == 100
    for start in starts:
        assert math.dist(*start.gates) >= 0.8
        for one, other in itertools.combinations([*start.runners, *start.gates, start.hunter], 2):
            assert math.dist(one, other) >= 0.5
            assert max(map(abs, (*one, *other))) <= 0.85


# ---- pictures -------------------------------------------------------------------------------------


def pixel_at(picture: np.ndarray, x: float, y: float) -> list[int]:
    """The pixel of a place in the world: the picture is 400 wide and shows 1.16 on all sides."""
    return picture[int((1.16 - y) / 2.32 * 400), int((x + 1.16) / 2.32 * 400)].tolist()


def count(picture: np.ndarray, colour: tuple[int, int, int]) -> int:
    return int((picture == np.array(colour, np.uint8)).all(axis=-1).sum())


def test_a_picture_has_everyone_where_they_are() -> None:
    picture = draw(world_of((-0.5, 0.3), (0.4, -0.6), gates=((0.0, 0.8), (0.7, 0.1)), hunter=(-0.7, -0.7)))
    assert (picture.shape, picture.dtype) == ((400, 400, 3), np.uint8)
    assert pixel_at(picture, -0.5, 0.28) == list(pursuit.RUNNER[0])
    assert pixel_at(picture, 0.4, -0.62) == list(pursuit.RUNNER[1])
    assert pixel_at(picture, -0.7, -0.73) == list(pursuit.HUNTER)
    assert pixel_at(picture, 0.15, 0.8) == pixel_at(picture, 0.55, 0.1) == list(pursuit.GATE_OPEN)
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 100, "edges are smooth"


def test_a_picture_shows_runners_that_are_out_or_caught() -> None:
    world = world_of((0.9, 0.9), (0.15, 0.0), hunter=(0.0, 0.0))
    before = draw(world)
    assert count(before, pursuit.GATE_CLOSED) == 0
    world.step([STAY, LEFT])
    assert world.fates == [Fate.OUT, Fate.CAUGHT]
    after = draw(world)
    assert count(after, pursuit.GATE_CLOSED) > 100
    assert count(after, pursuit.GATE_OPEN) < count(before, pursuit.GATE_OPEN)
    assert count(before, pursuit.RUNNER[1]) > 100
    assert count(after, pursuit.RUNNER[1]) == 0, "a faded cross"


def test_a_picture_shows_the_time_left() -> None:
    world = world_of((0.0, 0.0), (0.5, 0.0), time_limit=4)
    row = int((1.16 + 1.11) / 2.32 * 400)
    brightness = [int(draw(world)[row].astype(int).sum())]
    while not world.over:
        world.step([STAY, STAY])
        brightness.append(int(draw(world)[row].astype(int).sum()))
    assert brightness == sorted(set(brightness), reverse=True), "the bright bar grows shorter"
