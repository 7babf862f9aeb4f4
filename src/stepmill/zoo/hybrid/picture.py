"""The picture of a world, painted with numpy alone: thick lines with smooth edges."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from stepmill.zoo.hybrid.world import ACCELERATE, BRAKE, Point, World

SIZE, REACH = 400, 1.16  # pixels, and how far the world is shown: the field and a margin, in which the clock is
MARGIN, FIELD, GRID, EDGE = (226, 228, 234), (250, 250, 252), (234, 236, 242), (178, 184, 198)
CLOCK, CLOCK_BACK = (110, 118, 140), (206, 210, 220)
AGENT, TRAIL, FLAME, BRAKE_LIGHT = (58, 92, 214), (132, 154, 230), (255, 150, 46), (224, 40, 56)
TARGET, FAILURE = (38, 168, 112), (214, 60, 60)

Colour = tuple[int, int, int]


def draw(world: World) -> NDArray[np.uint8]:
    """The world as an RGB array, (400, 400, 3).

    The target is green, filled once the agent has stopped in it. The agent is a blue arrowhead with a fading trail;
    a flame shows the power of an acceleration, red lights show the brake. The bar below is the time left. A red
    frame: the agent left the field.
    """
    picture = _empty_field().copy()
    left = 1.96 * world.time_left - 0.98
    if world.time_left > 0:
        _line(picture, (-0.98, -1.08), (left, -1.08), 0.036, CLOCK)
    _draw_target(picture, world)
    if world.outside:
        _frame(picture, 0.022, FAILURE)
    path = world.path[-60:]
    for i, (start, end) in enumerate(itertools.pairwise(path), start=1):
        _line(picture, start, end, 0.018, TRAIL, 0.1 + 0.8 * i / len(path))
    _draw_agent(picture, world)
    return np.rint(picture).astype(np.uint8)


@functools.cache
def _empty_field() -> NDArray[np.float32]:
    picture = np.full((SIZE, SIZE, 3), MARGIN, np.float32)
    low, high = (round((1 + place / REACH) / 2 * SIZE) for place in (-1, 1))
    picture[low:high, low:high] = FIELD
    for place in np.arange(-0.75, 1, 0.25).tolist():
        _line(picture, (place, -1), (place, 1), 0.006, GRID)
        _line(picture, (-1, place), (1, place), 0.006, GRID)
    _frame(picture, 0.012, EDGE)
    _line(picture, (-0.98, -1.08), (0.98, -1.08), 0.036, CLOCK_BACK)
    return picture


def _draw_target(picture: NDArray[np.float32], world: World) -> None:
    diameter, ring = 2 * world.rules.target_radius, 0.032
    filled = 0.85 if world.succeeded else 0.35 if world.inside else 0.16
    _line(picture, world.target, world.target, diameter + ring / 2, TARGET)
    _line(picture, world.target, world.target, diameter - ring / 2, FIELD)
    _line(picture, world.target, world.target, diameter - ring / 2, TARGET, filled)
    _line(picture, world.target, world.target, 0.028, TARGET)


def _draw_agent(picture: NDArray[np.float32], world: World) -> None:
    (x, y), action = world.position, world.action
    cosine, sine = math.cos(world.heading), math.sin(world.heading)

    def place(ahead: float, left: float) -> Point:
        """The point that is this far ahead of the agent's centre and this far to its left."""
        return x + ahead * cosine - left * sine, y + ahead * sine + left * cosine

    if action is not None and action.kind == ACCELERATE and action.power > 0:
        _line(picture, place(-0.04, 0), place(-0.07 - 0.11 * action.power, 0), 0.03, FLAME)
    for side in (1, -1):  # an arrowhead
        _line(picture, place(0.08, 0), place(-0.06, 0.05 * side), 0.04, AGENT)
    _line(picture, place(0.06, 0), place(-0.02, 0), 0.05, AGENT)
    if action is not None and action.kind == BRAKE:
        for side in (1, -1):
            _line(picture, place(-0.064, 0.054 * side), place(-0.064, 0.054 * side), 0.04, BRAKE_LIGHT)


def _frame(picture: NDArray[np.float32], width: float, colour: Colour) -> None:
    corners = [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0), (-1.0, -1.0)]
    for start, end in itertools.pairwise(corners):
        _line(picture, start, end, width, colour)


def _line(
    picture: NDArray[np.float32], start: Point, end: Point, width: float, colour: Colour, alpha: float = 1.0
) -> None:
    """A line with round ends; a disc, if it ends where it starts. A pixel takes as much colour as it is covered."""
    pixel = 2 * REACH / SIZE
    (x0, y0), (x1, y1) = (((x + REACH) / pixel - 0.5, (REACH - y) / pixel - 0.5) for x, y in (start, end))
    radius = width / 2 / pixel
    rows = np.arange(max(0, int(min(y0, y1) - radius)), min(SIZE, int(max(y0, y1) + radius) + 2), dtype=np.float32)
    columns = np.arange(max(0, int(min(x0, x1) - radius)), min(SIZE, int(max(x0, x1) + radius) + 2), dtype=np.float32)
    if not rows.size or not columns.size:
        return
    x, y = columns[None, :] - x0, rows[:, None] - y0
    dx, dy = x1 - x0, y1 - y0
    along = np.clip((x * dx + y * dy) / max(dx * dx + dy * dy, 1e-9), 0, 1)
    cover = np.clip(radius + 0.5 - np.hypot(x - along * dx, y - along * dy), 0, 1) * alpha
    part = picture[int(rows[0]) : int(rows[-1]) + 1, int(columns[0]) : int(columns[-1]) + 1]
    part += (np.array(colour, np.float32) - part) * cover[..., None]
