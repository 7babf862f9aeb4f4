"""The picture of a pursuit: field, gates, both runners, the hunter, and where they came from."""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from stepmill.zoo.canvas import Canvas, Colour, Point
from stepmill.zoo.pursuit.world import CATCH_RADIUS, GATE_RADIUS, Fate, PursuitWorld

__all__ = ["draw"]

SIZE = 400
REACH = 1.16  # the field and a margin, in which the clock is

MARGIN: Colour = (30, 34, 48)
FIELD: Colour = (44, 50, 68)
GRID: Colour = (52, 59, 79)
EDGE: Colour = (92, 102, 130)
RUNNER: list[Colour] = [(255, 196, 61), (86, 190, 255)]
EYE: Colour = (34, 38, 54)
HUNTER: Colour = (240, 72, 88)
TEETH: Colour = (255, 240, 240)
GATE_OPEN: Colour = (82, 214, 148)
GATE_CLOSED: Colour = (104, 112, 134)
CLOCK: Colour = (150, 160, 188)
CLOCK_BACK: Colour = (52, 58, 76)


def draw(world: PursuitWorld) -> NDArray[np.uint8]:
    """The world as an RGB array, (400, 400, 3).

    Open gates are green rings, a closed one is grey and holds the runner that left by it. Runners are yellow and blue,
    a caught one is a faded cross; the hunter is red, within the circle in which it catches. The bar below is the time
    left.
    """
    canvas = _empty_field().copy()
    canvas.bar(-1.11, 0.03, world.time_left, CLOCK, CLOCK_BACK)
    for place, is_open in zip(world.gates, world.gate_open, strict=True):
        _draw_gate(canvas, place, is_open)
    for path, colour in zip(world.paths, [*RUNNER, HUNTER], strict=True):
        canvas.trail(path[-25:], 0.02, colour, oldest=0.0, newest=0.5)
    for place, fate, colour in zip(world.runners, world.fates, RUNNER, strict=True):
        _draw_runner(canvas, place, fate, colour)
    _draw_hunter(canvas, world.hunter)
    return canvas.picture()


@functools.cache
def _empty_field() -> Canvas:
    canvas = Canvas(SIZE, REACH, MARGIN)
    canvas.box((-1.06, -1.06), (1.06, 1.06), EDGE, rounding=0.08)
    canvas.box((-1.05, -1.05), (1.05, 1.05), FIELD, rounding=0.07)
    for place in np.arange(-0.8, 1, 0.2).tolist():
        canvas.line((place, -1.03), (place, 1.03), 0.006, GRID)
        canvas.line((-1.03, place), (1.03, place), 0.006, GRID)
    return canvas


def _draw_gate(canvas: Canvas, place: Point, is_open: bool) -> None:
    colour = GATE_OPEN if is_open else GATE_CLOSED
    if is_open:
        canvas.disc(place, GATE_RADIUS, colour, 0.3, blur=0.12)
    canvas.disc(place, GATE_RADIUS, colour, 0.2)
    canvas.ring(place, GATE_RADIUS, 0.02, colour)
    canvas.ring(place, 0.6 * GATE_RADIUS, 0.01, colour, 0.6)


def _draw_runner(canvas: Canvas, place: Point, fate: Fate, colour: Colour) -> None:
    x, y = place
    if fate is Fate.CAUGHT:
        canvas.line((x - 0.035, y - 0.035), (x + 0.035, y + 0.035), 0.024, colour, 0.6)
        canvas.line((x - 0.035, y + 0.035), (x + 0.035, y - 0.035), 0.024, colour, 0.6)
        return
    canvas.disc((x, y - 0.012), 0.05, MARGIN, 0.5, blur=0.05)
    canvas.disc(place, 0.05, colour)
    for side in (-1, 1):
        canvas.disc((x + 0.019 * side, y + 0.008), 0.0105, EYE)


def _draw_hunter(canvas: Canvas, place: Point) -> None:
    x, y = place
    canvas.disc(place, CATCH_RADIUS, HUNTER, 0.16)
    canvas.ring(place, CATCH_RADIUS, 0.008, HUNTER, 0.6)
    body = [(x - 0.055, y - 0.04), (x + 0.055, y - 0.04), (x, y + 0.05)]
    canvas.polygon(body, HUNTER, rounding=0.016)
    for side in (-1, 1):
        canvas.disc((x + 0.02 * side, y - 0.008), 0.011, TEETH)
