"""How a pool on Ray paces its requests, without Ray."""

from __future__ import annotations

import pytest

from stepmill.pool.ray.pace import Pace


@pytest.mark.parametrize(
    ("sizes", "batch_size", "as_ready", "most", "spare"),
    [
        ([32, 32], 64, False, [32, 32], [0, 0]),  # sync: all of them at once, and nobody is spared
        ([32, 32], 48, False, [32, 32], [8, 8]),
        ([32, 32], 32, False, [16, 16], [16, 16]),
        ([32, 32], 16, False, [16, 16], [24, 24]),
        ([3, 2], 2, False, [2, 1], [1, 1]),
        ([1], 1, False, [1], [0]),
        ([32, 32], 64, True, [16, 16], [16, 16]),
    ],
)
def test_what_a_request_is_for(
    sizes: list[int], batch_size: int, as_ready: bool, most: list[int], spare: list[int]
) -> None:
    pace = Pace(sizes, batch_size, as_ready)
    assert [pace.most(group) for group in range(len(sizes))] == most
    assert [pace.spare(group) for group in range(len(sizes))] == spare


def test_a_second_request_is_for_half_of_a_part_at_least() -> None:
    pace = Pace([32, 32], 32, as_ready=False)
    assert not pace.takes_more(0, waiting=0, under_way=0)
    assert pace.takes_more(0, waiting=1, under_way=0)
    assert not pace.takes_more(0, waiting=7, under_way=1)
    assert pace.takes_more(0, waiting=8, under_way=1)
    assert not pace.takes_more(0, waiting=32, under_way=2)


def test_nobody_who_takes_what_is_ready_waits_for_company() -> None:
    pace = Pace([32], 32, as_ready=True)
    assert pace.takes_more(0, waiting=1, under_way=1)
    assert not pace.takes_more(0, waiting=1, under_way=2)


def test_in_step_there_is_one_request() -> None:
    assert not Pace([32], 32, as_ready=False).takes_more(0, waiting=32, under_way=1)


def test_courtesy_to_slow_actors_wears_off_and_comes_back() -> None:
    pace = Pace([32, 32], 32, as_ready=False)
    longest = pace.courtesy
    pace.learn(in_time=True)
    assert pace.courtesy == longest
    for _ in range(20):
        pace.learn(in_time=False)
    assert 0 < pace.courtesy < longest / 20
    for _ in range(20):
        pace.learn(in_time=True)
    assert pace.courtesy == longest
