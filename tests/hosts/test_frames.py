"""Small pictures from whatever ``render`` returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepmill.hosts.frames import frame_of, picture_of, shrunk


@pytest.mark.parametrize(
    ("shape", "dtype", "expected"),
    [
        ((20, 30, 3), np.uint8, (20, 30, 3)),
        ((20, 30, 4), np.uint8, (20, 30, 3)),
        ((20, 30, 1), np.uint8, (20, 30, 3)),
        ((20, 30), np.uint8, (20, 30, 3)),
        ((3, 20, 30), np.uint8, (20, 30, 3)),  # channels first
        ((4, 84, 84), np.uint8, (84, 84, 3)),  # a stack of grey ones
        ((20, 30), np.float32, (20, 30, 3)),  # depths
        ((20, 30, 3), np.float64, (20, 30, 3)),
    ],
)
def test_arrays_that_are_pictures(shape: tuple[int, ...], dtype: Any, expected: tuple[int, ...]) -> None:
    picture = picture_of(np.ones(shape, dtype))
    assert picture is not None
    assert (picture.shape, picture.dtype) == (expected, np.uint8)


@pytest.mark.parametrize(
    "value", [None, "text", np.zeros(5), np.zeros((3, 3)), np.zeros((0, 9)), np.zeros((9, 9), "M8[s]")]
)
def test_what_is_no_picture(value: Any) -> None:
    assert picture_of(value) is None


def test_the_newest_of_a_stack_is_shown() -> None:
    stack = np.stack([np.full((84, 84), i, np.uint8) for i in range(4)])
    picture = picture_of(stack)
    assert picture is not None
    assert (picture == 3).all()


def test_floats_from_0_to_1_keep_their_brightness() -> None:
    picture = picture_of(np.full((10, 10, 3), 0.5))
    assert picture is not None
    assert set(picture.ravel().tolist()) == {127}


@pytest.mark.parametrize("most", [7, 64, 100, 1000])
def test_large_pictures_are_shrunk_to_means(most: int) -> None:
    picture = np.random.default_rng(0).integers(0, 256, (200, 300, 3), dtype=np.uint8)
    small = shrunk(picture, most)
    by = -(-300 // most)
    assert max(small.shape[:2]) <= most
    assert small.shape[:2] == (200 // by, 300 // by)
    assert abs(int(small[0, 0, 1]) - int(picture[:by, :by, 1].mean())) <= 1


def test_a_frame_has_a_picture_a_text_or_a_reason() -> None:
    def fail() -> Any:
        raise SystemExit("no")

    picture = frame_of(3, lambda: [None, np.zeros((8, 8, 3), np.uint8)], 100)  # of a mode that returns lists
    assert isinstance(picture.content, np.ndarray)
    assert picture.seconds >= 0
    assert frame_of(3, lambda: "x" * 10_000, 100).content == "x" * 4000
    assert "returned nothing" in str(frame_of(3, lambda: None, 100).failure)
    assert "SystemExit: no" in str(frame_of(3, fail, 100).failure)
