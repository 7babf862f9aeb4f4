"""How a pool on Ray paces its requests, without Ray."""

from __future__ import annotations

import pytest

from stepmill.pool.ray.pace import Pace


@pytest.mark.parametrize(
    ("sizes", "batch_size", "requests", "most", "spare"),
    [
        ([32, 32], 64, 1, [32, 32], [0, 0]),  # sync: all of them at once, and nobody is spared
        ([32, 32], 48, 1, [32, 32], [8, 8]),
        ([32, 32], 32, 2, [16, 16], [16, 16]),
        ([32, 32], 16, 2, [16, 16], [24, 24]),
        ([3, 2], 2, 2, [2, 1], [1, 1]),
        ([2, 1], 1, 2, [1, 1], [1, 0]),
        ([1], 1, 1, [1], [0]),
    ],
)
def test_what_a_request_is_for(
    sizes: list[int], batch_size: int, requests: int, most: list[int], spare: list[int]
) -> None:
    pace = Pace(sizes, 1, batch_size, as_ready=False)
    assert pace.most_requests == requests
    assert [pace.most(group) for group in range(len(sizes))] == most
    assert [pace.spare(group) for group in range(len(sizes))] == spare


@pytest.mark.parametrize(("workers", "spare"), [(1, 8), (12, 12)])
def test_of_a_caller_who_takes_what_is_ready(workers: int, spare: int) -> None:
    pace = Pace([32], workers, 32, as_ready=True)
    assert (pace.most_requests, pace.most(0), pace.spare(0)) == (2, 16, spare)


@pytest.fixture
def pace() -> Pace:
    return Pace([32, 32, 32], 1, 32, as_ready=False)


def test_if_nobody_is_to_answer_all_are_asked(pace: Pace) -> None:
    assert pace.due([0, 2], is_another_asked=False, now=5.0) == [0, 2]
    assert pace.patience(5.0) is None


def test_others_are_left_alone_for_a_while_and_no_longer(pace: Pace) -> None:
    assert pace.due([0], is_another_asked=True, now=5.0) == []
    grace = pace.patience(5.0)
    assert grace is not None
    pace.rows_came()
    assert pace.due([0, 1], is_another_asked=True, now=5.0 + grace / 2) == []
    assert pace.patience(5.0 + grace / 2) == pytest.approx(grace / 2)
    pace.rows_came()  # that others answer all the time is no reason to forget one
    assert pace.due([0, 1], is_another_asked=True, now=5.0 + 1.1 * grace) == [0]


def test_whoever_was_asked_is_left_alone_anew(pace: Pace) -> None:
    pace.due([0], is_another_asked=True, now=5.0)
    assert pace.due([], is_another_asked=True, now=6.0) == []
    assert pace.due([0], is_another_asked=True, now=7.0) == []


def test_grace_wears_off_where_it_is_in_vain_and_comes_back(pace: Pace) -> None:
    def grace(now: float) -> float:
        assert pace.due([0], is_another_asked=True, now=now) == []
        found = pace.patience(now)
        assert found is not None
        return found

    longest = grace(0.0)
    for now in range(1, 21):
        assert pace.due([0], is_another_asked=True, now=now) == [0]
        grace(now + 0.0)
    assert 0 < grace(20.0) < longest / 20
    for _ in range(20):
        pace.rows_came()
    assert grace(20.0) == pytest.approx(longest)
