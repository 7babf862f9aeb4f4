"""The picture of a hybrid world: field, target, the agent and where it came from."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from stepmill.zoo.canvas import Canvas, Colour, Point
from stepmill.zoo.hybrid.actions import ACCELERATE, BRAKE
from stepmill.zoo.hybrid.world import World

__all__ = ["draw"]

SIZE = 400
REACH = 1.16  # the field and a margin, in which the clock is

MARGIN: Colour = (226, 228, 234)
FIELD: Colour = (250, 250, 252)
GRID: Colour = (234, 236, 242)
EDGE: Colour = (178, 184, 198)
SHADOW: Colour = (52, 60, 84)
AGENT: Colour = (58, 92, 214)
COCKPIT: Colour = (214, 226, 255)
TRAIL: Colour = (132, 154, 230)
FLAME: Colour = (255, 150, 46)
BRAKE_LIGHT: Colour = (224, 40, 56)
TARGET: Colour = (38, 168, 112)
FAILURE: Colour = (214, 60, 60)
CLOCK: Colour = (110, 118, 140)
CLOCK_BACK: Colour = (206, 210, 220)


def draw(world: World) -> NDArray[np.uint8]:
    """The world as an RGB array, (400, 400, 3).

    The target is green, filled once the agent has stopped in it. The agent is a blue arrowhead with a fading trail;
    a flame shows the power of an acceleration, red lights show the brake. The bar below is the time left. A red
    frame: the agent left the field.
    """
    canvas = _empty_field().copy()
    canvas.bar(-1.08, 0.036, world.time_left, CLOCK, CLOCK_BACK)
    _draw_target(canvas, world)
    if world.outside:
        _draw_frame(canvas, FAILURE, 0.022)
    canvas.trail(world.path[-60:], 0.018, TRAIL, oldest=0.1, newest=0.9)
    _draw_agent(canvas, world)
    return canvas.picture()


@functools.cache
def _empty_field() -> Canvas:
    canvas = Canvas(SIZE, REACH, MARGIN)
    canvas.box((-1, -1), (1, 1), FIELD)
    for place in np.arange(-0.75, 1, 0.25).tolist():
        canvas.line((place, -1), (place, 1), 0.006, GRID)
        canvas.line((-1, place), (1, place), 0.006, GRID)
    _draw_frame(canvas, EDGE, 0.012)
    return canvas


def _draw_frame(canvas: Canvas, colour: Colour, width: float) -> None:
    corners: list[Point] = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    for start, end in zip(corners, [*corners[1:], corners[0]], strict=True):
        canvas.line(start, end, width, colour)


def _draw_target(canvas: Canvas, world: World) -> None:
    radius = world.rules.target_radius
    filled = 0.85 if world.succeeded else 0.35 if world.inside else 0.16
    canvas.disc(world.target, radius, TARGET, filled)
    canvas.ring(world.target, radius, 0.016, TARGET)
    canvas.disc(world.target, 0.014, TARGET)


def _draw_agent(canvas: Canvas, world: World) -> None:
    forward = (math.cos(world.heading), math.sin(world.heading))
    x, y = world.position

    def place(ahead: float, left: float) -> Point:
        """Of a point that is so far ahead of the agent's middle and so far to its left."""
        return x + ahead * forward[0] - left * forward[1], y + ahead * forward[1] + left * forward[0]

    canvas.disc((x + 0.008, y - 0.018), 0.055, SHADOW, 0.35, blur=0.07)
    action = world.action
    if action is not None and action.kind == ACCELERATE and action.power > 0:
        length = 0.03 + 0.11 * action.power
        canvas.polygon([place(-0.04, 0.024), place(-0.04 - length, 0), place(-0.04, -0.024)], FLAME, rounding=0.008)
    # An arrowhead is two convex halves; they overlap a little, so that no seam shows.
    for side in (1, -1):
        half = [place(0.085, 0), place(-0.065, 0.06 * side), place(-0.035, -0.004 * side)]
        canvas.polygon(half if side > 0 else half[::-1], AGENT, rounding=0.012)
    canvas.disc(place(0.012, 0), 0.016, COCKPIT)
    if action is not None and action.kind == BRAKE:
        for side in (1, -1):
            canvas.disc(place(-0.064, 0.054 * side), 0.02, BRAKE_LIGHT)
