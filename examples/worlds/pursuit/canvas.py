"""A small painter: smooth shapes on an RGB picture, with only numpy.

Every shape is a signed distance, negative inside. A pixel takes as much of the colour as the shape covers of it, so
edges are smooth.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Canvas", "Colour", "Point"]

Colour = tuple[int, int, int]
Point = tuple[float, float]
_Array = NDArray[np.float32]


class Canvas:
    """A picture of the world from ``-reach`` to ``reach``, with (0, 0) in the middle and y pointing up.

    Shapes are placed and measured in units of the world. Later ones lie over earlier ones.
    """

    def __init__(self, height: int, width: int, background: Colour, reach: float = 1.0) -> None:
        self._picture: _Array = np.empty((height, width, 3), np.float32)
        self._picture[:] = background
        self._pixel = 2 * reach / width
        self._x: _Array = ((np.arange(width, dtype=np.float32) + 0.5) * self._pixel - reach)[None, :]
        self._y: _Array = (reach * (height / width) - (np.arange(height, dtype=np.float32) + 0.5) * self._pixel)[
            :, None
        ]

    def copy(self) -> Canvas:
        """A copy of this picture, to paint on."""
        other = Canvas.__new__(Canvas)
        other.__dict__.update(self.__dict__, _picture=self._picture.copy())
        return other

    def picture(self) -> NDArray[np.uint8]:
        """The picture as a new array of shape (height, width, 3)."""
        return np.rint(self._picture).astype(np.uint8)

    # ---- shapes ------------------------------------------------------------------------------

    def disc(self, centre: Point, radius: float, colour: Colour, alpha: float = 1.0, blur: float = 0.0) -> None:
        """A filled circle; ``blur`` is the width over which its edge fades, for shadows and glows."""
        rows, columns, x, y = self._window([centre], radius + blur)
        distance = np.hypot(x - centre[0], y - centre[1]) - radius
        self._paint(rows, columns, distance, colour, alpha, blur)

    def ring(self, centre: Point, radius: float, width: float, colour: Colour, alpha: float = 1.0) -> None:
        """A circle as a line of that width."""
        rows, columns, x, y = self._window([centre], radius + width)
        distance = np.abs(np.hypot(x - centre[0], y - centre[1]) - radius) - width / 2
        self._paint(rows, columns, distance, colour, alpha)

    def line(self, start: Point, end: Point, width: float, colour: Colour, alpha: float = 1.0) -> None:
        """A line with round ends."""
        rows, columns, x, y = self._window([start, end], width)
        self._paint(rows, columns, _from_segment(x, y, start, end) - width / 2, colour, alpha)

    def trail(self, path: Sequence[Point], width: float, colour: Colour, oldest: float, newest: float) -> None:
        """A line through all points that fades from the last point to the first."""
        cover = np.zeros(self._picture.shape[:2], np.float32)
        for i, (start, end) in enumerate(itertools.pairwise(path), start=1):
            rows, columns, x, y = self._window([start, end], width)
            alpha = oldest + (newest - oldest) * i / (len(path) - 1)
            part = self._cover(_from_segment(x, y, start, end) - width / 2) * alpha
            np.maximum(cover[rows, columns], part, out=cover[rows, columns])  # so that joints are not darker
        rows, columns, _, _ = self._window(path, width)
        self._blend(rows, columns, cover[rows, columns], colour)

    def polygon(self, corners: Sequence[Point], colour: Colour, alpha: float = 1.0, rounding: float = 0.0) -> None:
        """A convex shape, with its corners counterclockwise; ``rounding`` enlarges it and rounds its corners."""
        rows, columns, x, y = self._window(corners, rounding)
        inside: Any = -np.inf
        outside: Any = np.inf
        for start, end in zip(corners, [*corners[1:], corners[0]], strict=True):
            dx, dy = end[0] - start[0], end[1] - start[1]
            inside = np.maximum(inside, ((x - start[0]) * dy - (y - start[1]) * dx) / math.hypot(dx, dy))
            outside = np.minimum(outside, _from_segment(x, y, start, end))
        self._paint(rows, columns, np.where(inside < 0, inside, outside) - rounding, colour, alpha)

    def box(self, low: Point, high: Point, colour: Colour, alpha: float = 1.0, rounding: float = 0.0) -> None:
        """An upright rectangle with rounded corners."""
        rows, columns, x, y = self._window([low, high], 0.0)
        dx = np.abs(x - (low[0] + high[0]) / 2) - (high[0] - low[0]) / 2 + rounding
        dy = np.abs(y - (low[1] + high[1]) / 2) - (high[1] - low[1]) / 2 + rounding
        outside = np.hypot(np.maximum(dx, 0), np.maximum(dy, 0))
        self._paint(rows, columns, outside + np.minimum(np.maximum(dx, dy), 0) - rounding, colour, alpha)

    def grid(self, reach: float, spacing: float, width: float, colour: Colour) -> None:
        """Lines from ``-reach`` to ``reach`` in both directions, at positions between -1 and 1."""
        for place in np.arange(spacing - 1, 1, spacing).tolist():
            self.line((place, -reach), (place, reach), width, colour)
            self.line((-reach, place), (reach, place), width, colour)

    def bar(self, y: float, width: float, share: float, colour: Colour, background: Colour) -> None:
        """A horizontal bar from -1 to 1, filled from the left by that share: a clock."""
        left, right = width / 2 - 1, 1 - width / 2  # the ends are round
        self.line((left, y), (right, y), width, background)
        if share > 0:
            self.line((left, y), (left + (right - left) * share, y), width, colour)

    # ---- pixels ------------------------------------------------------------------------------

    def _window(self, points: Sequence[Point], margin: float) -> tuple[slice, slice, _Array, _Array]:
        """The part of the picture around the points, so that small shapes are cheap."""
        margin += 2 * self._pixel
        low_x, high_x = min(x for x, _ in points) - margin, max(x for x, _ in points) + margin
        low_y, high_y = min(y for _, y in points) - margin, max(y for _, y in points) + margin
        columns = slice(*np.searchsorted(self._x[0], [low_x, high_x]))
        rows = slice(*np.searchsorted(-self._y[:, 0], [-high_y, -low_y]))
        return rows, columns, self._x[:, columns], self._y[rows]

    def _paint(
        self, rows: slice, columns: slice, distance: Any, colour: Colour, alpha: float, blur: float = 0.0
    ) -> None:
        self._blend(rows, columns, self._cover(distance, blur) * alpha, colour)

    def _cover(self, distance: Any, blur: float = 0.0) -> Any:
        """How much of each pixel a shape covers, from 0 to 1."""
        return np.clip(0.5 - distance / max(self._pixel, blur), 0, 1)

    def _blend(self, rows: slice, columns: slice, cover: Any, colour: Colour) -> None:
        part = self._picture[rows, columns]
        part += (np.array(colour, np.float32) - part) * cover[..., None].astype(np.float32)


def _from_segment(x: _Array, y: _Array, start: Point, end: Point) -> Any:
    """How far each pixel is from the line between two points."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    along = ((x - start[0]) * dx + (y - start[1]) * dy) / max(dx * dx + dy * dy, 1e-12)
    along = np.clip(along, 0, 1)
    return np.hypot(x - start[0] - along * dx, y - start[1] - along * dy)
