"""Many pictures as one: a grid, each of the same size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["Grid"]

_GAP = 4  # pixels between pictures
_DIMMED = 2  # a picture that stands still has half of its brightness


class Grid:
    """Puts pictures side by side, in about the shape of a screen.

    Args:
        count: How many.
        size: Height and width of each picture.
        most: Height and width that the grid may have. Pictures are made smaller by a whole number to fit into it.
    """

    def __init__(self, count: int, size: tuple[int, int], most: tuple[int, int] = (1080, 1920)) -> None:
        self.picture_size = height, width = size
        # As many columns as let the pictures be largest, with as few empty places as possible.
        self.columns = max(
            range(1, count + 1),
            key=lambda columns: (
                min(most[0] / (math.ceil(count / columns) * height), most[1] / (columns * width)),
                -math.ceil(count / columns) * columns,
            ),
        )
        self.rows = math.ceil(count / self.columns)
        needed = max(self.rows * (height + _GAP) / most[0], self.columns * (width + _GAP) / most[1])
        self._factor = max(1, math.ceil(needed))
        self._tile = max(1, height // self._factor), max(1, width // self._factor)
        self.size = self.rows * (self._tile[0] + _GAP) - _GAP, self.columns * (self._tile[1] + _GAP) - _GAP

    def draw(self, pictures: Sequence[np.ndarray | None], still: Sequence[bool]) -> np.ndarray:
        """The grid, uint8 of shape ``(*size, 3)``: black where there is no picture, darker where one stands still."""
        image = np.zeros((*self.size, 3), np.uint8)
        height, width = self._tile
        for place, (picture, is_still) in enumerate(zip(pictures, still, strict=True)):
            if picture is not None:
                row, column = divmod(place, self.columns)
                top, left = row * (height + _GAP), column * (width + _GAP)
                tile = self._smaller(picture)
                image[top : top + height, left : left + width] = tile // _DIMMED if is_still else tile
        return image

    def _smaller(self, picture: np.ndarray) -> np.ndarray:
        """The mean of each square of pixels."""
        factor, (height, width) = self._factor, self._tile
        if factor == 1:
            return picture
        squares = picture[: height * factor, : width * factor].reshape(height, factor, width, factor, 3)
        smaller: np.ndarray = squares.mean(axis=(1, 3)).astype(np.uint8)
        return smaller
