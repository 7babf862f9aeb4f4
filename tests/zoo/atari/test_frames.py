"""Pictures of games: equal to OpenCV's and the emulator's, pixel by pixel."""

from __future__ import annotations

import sys
from typing import Any

import ale_py
import cv2
import numpy as np
import pytest
from ale_py import roms
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmill import _native
from stepmill.errors import ConfigError, MissingPackageError
from stepmill.zoo.atari import AtariGame, frames
from stepmill.zoo.atari.frames import Frames, matching_form
from stepmill.zoo.atari.options import AtariOptions


@pytest.fixture(scope="module")
def seaquest() -> Any:
    """An emulator in the middle of a colourful game."""
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", 1)
    ale.loadROM(roms.get_rom_path("seaquest"))
    for _ in range(400):
        ale.act(ale_py.Action.FIRE)
    return ale


def smaller(picture: np.ndarray, height: int, width: int, fused: bool) -> np.ndarray:
    channels = 1 if picture.ndim == 2 else 3
    native = _native.AtariFrames(*picture.shape[:2], channels, height, width, 1, fused)
    native.pictures[0] = picture
    native.push(False)
    return native.stack[0] if channels == 1 else native.stack.transpose(1, 2, 0)


def by_opencv(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    return np.asarray(cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA))


# ---- smaller -------------------------------------------------------------------------------------


def test_one_form_is_opencvs_over_millions_of_pixels() -> None:
    fused = matching_form(210, 160, 1, 84, 84)
    assert fused is not None
    generator = np.random.default_rng(1)
    wrong = other_form = pixels = 0
    for i in range(300):
        picture = generator.integers(0, 256, (210, 160), np.uint8)
        if i % 2:  # a few colours in blocks, as a game has them
            picture = np.repeat(np.repeat(picture[::7, ::4] // 32 * 32, 7, 0), 4, 1)[:210, :160]
        wanted = by_opencv(picture, 84, 84)
        wrong += int((smaller(picture, 84, 84, fused) != wanted).sum())
        other_form += int((smaller(picture, 84, 84, not fused) != wanted).sum())
        pixels += wanted.size
    assert pixels > 2_000_000
    assert wrong == 0
    assert other_form > 100  # so the test at start tells them apart


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 260), st.integers(1, 200), st.sampled_from([210, 214, 250]), st.booleans(), st.integers(0, 9))
def test_every_size_is_opencvs(height: int, width: int, screen: int, grey: bool, seed: int) -> None:
    shape = (screen, 160) if grey else (screen, 160, 3)
    picture = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    options = AtariOptions(img_height=height, img_width=width, stack_num=1, gray_scale=grey)
    shown = Frames(_Screen(picture), screen, options)
    shown.take(0)
    shown.push(False)
    wanted = by_opencv(picture, height, width)
    np.testing.assert_array_equal(shown.stack, wanted[None] if grey else wanted.transpose(2, 0, 1))


class _Screen:
    """An emulator that shows one picture; its colour numbers are its greys."""

    def __init__(self, picture: np.ndarray) -> None:
        self._picture = picture

    def getScreen(self, out: np.ndarray) -> None:
        out[...] = self._picture

    getScreenGrayscale = getScreenRGB = getScreen


def test_without_a_matching_form_opencv_does_it(monkeypatch: pytest.MonkeyPatch, seaquest: Any) -> None:
    options = AtariOptions(stack_num=2)
    ours = Frames(seaquest, 210, options)
    monkeypatch.setattr(frames, "matching_form", lambda *_: None)
    theirs = Frames(seaquest, 210, options)
    for one in (ours, theirs):
        one.fill()
        one.take(1)
        one.push(True)
    np.testing.assert_array_equal(ours.stack, theirs.stack)
    assert type(ours.push) is not type(theirs.push)


def test_linear_instead_of_area(seaquest: Any) -> None:
    shown = Frames(seaquest, 210, AtariOptions(stack_num=1, use_inter_area_resize=False))
    shown.fill()
    wanted = cv2.resize(seaquest.getScreenGrayscale(), (84, 84), interpolation=cv2.INTER_LINEAR)
    np.testing.assert_array_equal(shown.stack[0], wanted)


def test_a_missing_opencv_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    matching_form.cache_clear()
    frames._opencvs_form.cache_clear()
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingPackageError, match=r"Atari .*needs opencv-python-headless.*stepmill\[atari\]"):
        AtariGame("pong")


@pytest.mark.parametrize("sizes", [(0, 160, 1, 84, 84, 4), (210, 160, 2, 84, 84, 4), (210, 160, 1, 84, 20000, 4)])
def test_impossible_sizes_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="frames: expected"):
        _native.AtariFrames(*sizes, False)


# ---- grey ----------------------------------------------------------------------------------------


def test_greys_are_the_emulators(seaquest: Any) -> None:
    shown = Frames(seaquest, 210, AtariOptions())
    for step in range(200):
        shown.take(step % 2)
        np.testing.assert_array_equal(shown._pictures[step % 2], seaquest.getScreenGrayscale())
        seaquest.act(step % 18)


def test_a_grey_is_asked_for_once(seaquest: Any) -> None:
    class Counting:
        asked = 0
        getScreen = staticmethod(seaquest.getScreen)

        def getScreenGrayscale(self, out: np.ndarray) -> None:
            self.asked += 1
            seaquest.getScreenGrayscale(out)

    emulator = Counting()
    shown = Frames(emulator, 210, AtariOptions())
    for _ in range(5):
        shown.take(0)
    assert emulator.asked == 1
