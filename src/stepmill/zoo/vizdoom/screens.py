"""The game's screens as observations: small, channels first, the last few in one array."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError
from stepmill.system.optional import require
from stepmill.zoo.vizdoom.options import DoomOptions

__all__ = ["Screens", "choose_format"]

_WITH_PLANES = {"CRCGCB": "RGB24", "CBCGCR": "BGR24"}  # one picture per channel
_PIXELS = {"RGB24": "RGB", "BGR24": "BGR", "RGBA32": "RGBA", "ARGB32": "ARGB", "BGRA32": "BGRA", "ABGR32": "ABGR"}


def choose_format(game: Any) -> None:
    """Asks a game for pictures whose channels are together, where it would have one picture per channel.

    The numbers are the same, and resizing them takes half the time.
    """
    import vizdoom

    name = game.get_screen_format().name
    if name in _WITH_PLANES:
        game.set_screen_format(vizdoom.ScreenFormat.__members__[_WITH_PLANES[name]])


class Screens:
    """Keeps the last few screens of a game, oldest first."""

    def __init__(self, game: Any, options: DoomOptions) -> None:
        self._cv2 = require("cv2", "opencv-python-headless", "vizdoom", "ViZDoom")
        self._format = game.get_screen_format().name
        if self._format != "GRAY8" and self._format not in _PIXELS:
            raise ConfigError(f"screen_format: expected grey or colours, got {self._format}, which has neither")
        self._channels = int(game.get_screen_channels())
        self._shape = (options.stack_num * self._channels, options.img_height, options.img_width)
        self._size = (options.img_width, options.img_height)
        self._method = self._cv2.INTER_AREA if options.use_inter_area_resize else self._cv2.INTER_LINEAR
        self.last = np.zeros(self._shape, np.uint8)
        self._screen = np.zeros((game.get_screen_height(), game.get_screen_width()), np.uint8)

    def space(self) -> spaces.Box:
        return spaces.Box(0, 255, self._shape, np.uint8)

    def first(self, screen: np.ndarray) -> np.ndarray:
        """The screen that begins an episode stands for those before it."""
        self.last = np.empty(self._shape, np.uint8)
        self._draw(screen, self.last[-self._channels :])
        for begin in range(0, self._shape[0] - self._channels, self._channels):
            self.last[begin : begin + self._channels] = self.last[-self._channels :]
        return self.last

    def next(self, screen: np.ndarray) -> np.ndarray:
        """A new array: the one before belongs to whoever has it."""
        before, self.last = self.last, np.empty(self._shape, np.uint8)
        self.last[: -self._channels] = before[self._channels :]
        self._draw(screen, self.last[-self._channels :])
        return self.last

    def _draw(self, screen: np.ndarray, out: np.ndarray) -> None:
        self._screen = screen
        if screen.ndim == 2:
            self._cv2.resize(screen, self._size, dst=out[0], interpolation=self._method)
        else:
            out[:] = np.moveaxis(self._cv2.resize(screen, self._size, interpolation=self._method), -1, 0)

    def picture(self) -> np.ndarray:
        """The last screen as it was, for people: ``(height, width, 3)``."""
        screen = self._screen
        if screen.ndim == 2:
            return np.repeat(screen[:, :, None], 3, axis=2)
        return np.ascontiguousarray(screen[:, :, [_PIXELS[self._format].index(one) for one in "RGB"]])
