"""The pictures of a game: which routine makes them smaller, and the stack of the last ones.

The routine of ``cpp/envs/atari/area_resize.h`` is several times as fast as OpenCV's and equal to it bit for bit, in one
of two forms: how OpenCV rounds depends on how it was compiled. A test at start finds the form. If neither is equal,
OpenCV itself does it, as it does for sizes that the routine does not know.
"""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from stepmill import _native
from stepmill.system.optional import require
from stepmill.zoo.atari.games import WIDTH
from stepmill.zoo.atari.options import AtariOptions

_TEST_PICTURES = 8
_USUAL = (210, WIDTH), (84, 84)  # here one pixel in a thousand differs between the forms


def opencv() -> ModuleType:
    return require("cv2", "opencv-python-headless", "atari", "an Atari game with preprocessing")


def preload() -> None:
    """Imports OpenCV and finds its form."""
    _opencvs_form(1)


@lru_cache(64)
def matching_form(height: int, width: int, channels: int, new_height: int, new_width: int) -> bool | None:
    """Whether our routine must fuse products with sums to be equal to the installed OpenCV for such pictures.

    None if it cannot be equal: then only OpenCV itself is.
    """
    form = _opencvs_form(channels)
    if form is None or not _native.area_resize_fits(height, width, new_height, new_width):
        return None
    return form if _is_equal(form, channels, (height, width), (new_height, new_width)) else None


@lru_cache(2)
def _opencvs_form(channels: int) -> bool | None:
    """The form that is equal for the usual pictures. For others the forms may differ too seldom to tell."""
    equal = [fused for fused in (False, True) if _is_equal(fused, channels, *_USUAL)]
    return equal[0] if equal else None


def _is_equal(fused: bool, channels: int, size: tuple[int, int], new_size: tuple[int, int]) -> bool:
    cv2 = opencv()
    shape = size if channels == 1 else (*size, channels)
    ours = _native.AtariFrames(*size, channels, *new_size, 1, fused)
    for picture in np.random.default_rng(0).integers(0, 256, (_TEST_PICTURES, *shape), np.uint8):
        wanted = cv2.resize(picture, new_size[::-1], interpolation=cv2.INTER_AREA)
        if not np.array_equal(_made_smaller(ours, picture), _planes(wanted)):
            return False
    return True


def _made_smaller(frames: _native.AtariFrames, picture: np.ndarray) -> np.ndarray:
    frames.pictures[0] = picture
    frames.push(False)
    return frames.stack


def _planes(picture: np.ndarray) -> np.ndarray:
    """A picture as the stack has it: one plane per channel."""
    return picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1)


class Frames:
    """The last frames of a game.

    ``take`` draws the screen of the emulator, as the newest picture (0) or as the one before it (1). ``push`` makes the
    newest picture, or with ``of_both`` the maximum of both, smaller and puts it on top of the stack. ``fill`` begins a
    game: all frames of the stack are its first one.
    """

    def __init__(self, ale: Any, height: int, options: AtariOptions) -> None:
        channels = options.channels
        sizes = (height, WIDTH, channels, options.img_height, options.img_width)
        form = matching_form(*sizes) if options.use_inter_area_resize else None
        self._native = native = _native.AtariFrames(*sizes, options.stack_num, bool(form))
        self._ale = ale
        self.stack = native.stack
        self._screen, self._pictures = native.screen, (native.pictures[0], native.pictures[1])
        self._size, self._newest = (options.img_width, options.img_height), native.stack[-channels:]
        # Bound once: these are called in every step.
        self._get_screen, self._translate = ale.getScreen, native.translate
        self.take = self._take_grey if options.gray_scale else self._take_colours
        self._cv2: Any = None
        self._is_drawn = options.render_mode == "rgb_array"
        self.has_saved_screen = False  # which the emulator has not, until it goes on
        if form is None:
            self._cv2 = opencv()
            self._how = self._cv2.INTER_AREA if options.use_inter_area_resize else self._cv2.INTER_LINEAR
            self.push = self._push_by_opencv
        else:
            self.push = native.push

    def _take_grey(self, picture: int) -> None:
        self._get_screen(self._screen)
        if not self._translate(picture):  # a colour that this env has not seen before
            self._ale.getScreenGrayscale(self._pictures[picture])
            self._native.learn(picture)

    def _take_colours(self, picture: int) -> None:
        self._ale.getScreenRGB(self._pictures[picture])

    def fill(self) -> None:
        self.take(0)
        self._pictures[1].fill(0)
        self.push(False)
        self._native.repeat()

    # ---- saved states: the emulator's has no pictures --------------------------------------------

    def get_state(self) -> bytes:
        """The screen, the two newest pictures, and the stack."""
        native = self._native
        if not self.has_saved_screen:
            self._get_screen(self._screen)
            if self._is_drawn and not native.knows_colours():
                native.learn_colours(self._ale.getScreenRGB())
        return native.packed()

    def set_state(self, state: bytes) -> None:
        self._native.unpack(state)
        self.has_saved_screen = True

    def draw(self) -> Any:
        """The screen in colour."""
        return self._native.draw() if self.has_saved_screen else self._ale.getScreenRGB()

    def _push_by_opencv(self, of_both: bool) -> None:
        self._native.shift(of_both)
        self._newest[...] = _planes(self._cv2.resize(self._pictures[0], self._size, interpolation=self._how))
