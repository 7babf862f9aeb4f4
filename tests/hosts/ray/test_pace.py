"""How a pool on Ray paces its requests, without Ray."""

from __future__ import annotations

import pytest

from stepmill.hosts.ray.ray_host import Pace


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
    pace.rows_came(2, 5.0)
    assert pace.due([0, 1], is_another_asked=True, now=5.0 + grace / 2) == []
    assert pace.patience(5.0 + grace / 2) == pytest.approx(grace / 2)
    pace.rows_came(2, 5.0 + grace / 2)  # that others answer all the time is no reason to forget one
    assert pace.due([0, 1], is_another_asked=True, now=5.0 + 1.1 * grace) == [0]


def test_whoever_was_asked_is_left_alone_anew(pace: Pace) -> None:
    pace.due([0], is_another_asked=True, now=5.0)
    assert pace.due([], is_another_asked=True, now=6.0) == []
    assert pace.due([0], is_another_asked=True, now=7.0) == []


def grace_of(pace: Pace, now: float) -> float:
    """How long the first one would be left alone. Nobody is, before and after."""
    assert pace.due([0], is_another_asked=True, now=now) == []
    grace = pace.patience(now)
    assert pace.due([], is_another_asked=True, now=now) == []
    assert grace is not None
    return grace


def wait_in_vain(pace: Pace, now: float) -> float:
    """Leaves the first one alone until it is due. Returns when it is."""
    assert pace.due([0], is_another_asked=True, now=now) == []
    then = now + 1.01 * grace_of(pace, now)
    pace.due([0], is_another_asked=True, now=now)
    assert pace.due([0], is_another_asked=True, now=then) == [0]
    return then


def test_grace_wears_off_if_the_others_are_slow(pace: Pace) -> None:
    longest = grace_of(pace, 0.0)
    for now in range(20):
        pace.rows_came(0, wait_in_vain(pace, now))  # its own rows say nothing about the others
        pace.rows_came(1, now + 0.5)
    assert 0 < grace_of(pace, 20.0) < longest / 20


def test_grace_comes_back_if_it_would_have_been_worth_it(pace: Pace) -> None:
    longest = grace_of(pace, 0.0)
    for now in range(20):
        wait_in_vain(pace, now)
    for now in range(20, 40):
        assert pace.due([0], is_another_asked=True, now=now) == []
        if (patience := pace.patience(now)) is not None and patience < longest / 2:
            assert pace.due([0], is_another_asked=True, now=now + longest / 2) == [0]  # too early
        pace.rows_came(1, now + longest / 2)
        pace.due([], is_another_asked=True, now=now + 0.5)
    assert grace_of(pace, 40.0) == pytest.approx(longest)
