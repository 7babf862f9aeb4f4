"""Spaces of a native env's arrays, from what its class says about them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill.values.spaces import LeafKind, flatten, space_of

WHOLE = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def box_of(dtype: str, low: list[float], high: list[float]) -> Any:
    return space_of(0, [{"kind": LeafKind.BOX, "dtype": dtype, "shape": (2,), "low": low, "high": high}])


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_end_where_their_type_does(dtype: str) -> None:
    limits = np.iinfo(dtype)
    least, most = float(limits.min), float(limits.max)  # of 64 bits, the latter is more than the type has
    for low, high in (([least], [most]), ([-np.inf], [np.inf]), ([-1e300, least], [most, 1e300])):
        box = box_of(dtype, low, high)
        assert (box.low.tolist(), box.high.tolist()) == ([limits.min] * 2, [limits.max] * 2)
        leaf = flatten(box).leaves[0].as_dict()
        assert space_of(0, [leaf]) == box
    box = box_of(dtype, [3.0, least], [most, 7.0])
    assert (box.low.tolist(), box.high.tolist()) == ([3, limits.min], [limits.max, 7])


def test_floats_have_the_bounds_that_their_type_has() -> None:
    box = box_of("float32", [-np.inf, 0.1], [0.4, np.inf])
    assert box.low.tolist() == [-np.inf, np.float32(0.1)]
    assert box.high.tolist() == [np.float32(0.4), np.inf]


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_whole_bounds_stay_what_they_are(dtype: str) -> None:
    """Though no float is one of them."""
    wide = 2**53 + 1
    for box in (
        spaces.Box(wide, wide + 2, (3,), np.dtype(dtype).type),
        spaces.Box(np.array([0, wide], dtype), np.array([wide, wide + 2], dtype), dtype=np.dtype(dtype).type),
    ):
        assert space_of(0, [flatten(box).leaves[0].as_dict()]) == box
    for space in (spaces.Discrete(2, start=wide), spaces.MultiDiscrete([2, 9], start=[wide, 0])):
        assert space_of(0, [flatten(space).leaves[0].as_dict()]) == space
