"""What a pool on Ray and its actors write to each other, without Ray."""

from __future__ import annotations

import numpy as np
import pytest

from stepmill.hosts.ray.letters import Answer, Order


@pytest.mark.parametrize("order", [Order(3, b"abc", {1: b"x"}, {}), Order(0, None, {}, {2: b"y"})])
def test_orders(order: Order) -> None:
    assert Order.read(order.written()) == order


@pytest.mark.parametrize("size", [None, 0, 5, 1 << 20])
def test_answers(size: int | None) -> None:
    parcel = None if size is None else bytes(range(256)) * (size // 256 + 1)
    answer = Answer(parcel, [(0, 1, b"note")], [(1, 2, 3)])
    read = Answer.read(answer.written())
    assert read[1:] == answer[1:]
    assert (None if read.parcel is None else bytes(read.parcel)) == parcel


def test_small_answers_are_bytes_and_large_ones_have_an_array_that_is_no_copy() -> None:
    assert isinstance(Answer(b"abc", [], []).written(), bytes)
    parcel = bytes(1 << 20)
    rows, *_ = Answer(parcel, [], []).written()
    assert np.shares_memory(rows, np.frombuffer(parcel, np.uint8))
