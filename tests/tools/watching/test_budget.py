"""The share of the time that pictures take, by a clock that the tests turn."""

from __future__ import annotations

import pytest

from stepmill.tools.watching.looks import PLAYED_SHARE, SHARE, Budget


@pytest.mark.parametrize("limit", [SHARE, PLAYED_SHARE])
@pytest.mark.parametrize("cost", [0.0005, 0.004, 0.7, 30.0])
@pytest.mark.parametrize("look_every", [0.01, 0.5])
def test_pictures_take_at_most_their_share(limit: float, cost: float, look_every: float) -> None:
    budget, now, spent, drawn = Budget(0.0, 1, limit), 0.0, 0.0, 0
    while now < 2000:
        if budget.allows(now):
            assert spent <= limit * now + 1e-9
            now += cost
            spent += cost
            drawn += 1
            budget.spend(cost)
        now += look_every
    assert drawn > 1
    if cost / limit > look_every + cost:
        assert spent > 0.8 * limit * 2000 - cost  # and not much less: what is allowed is used


def test_what_is_not_used_is_not_saved_up_for_long() -> None:
    budget = Budget(0.0, 1)
    drawn = 0
    while budget.allows(100_000.0):  # a night without a browser
        budget.spend(0.01)
        drawn += 1
    assert drawn <= 7


def test_workers_that_draw_at_once_share_the_cost() -> None:
    budget = Budget(0.0, 4)
    for _ in range(4):
        budget.spend(1.0, 4)
    assert not budget.allows(19.9)
    assert budget.allows(20.1)
    assert budget.share(20.1) == pytest.approx(4.0 / (4 * 20.1))


def test_what_the_page_does_for_a_picture_delays_the_next() -> None:
    budget = Budget(0.0, 1)
    budget.spend_beside(1.0)
    assert not budget.allows(19.9)
    assert budget.allows(20.1)
    assert budget.share(20.1) == 0  # no worker did it


def test_the_share_is_that_of_the_last_seconds() -> None:
    budget = Budget(0.0, 1)
    budget.spend(1.0)
    assert budget.share(10.0) == pytest.approx(0.1)
    for now in range(11, 40):
        budget.share(float(now))
    assert budget.share(40.0) == 0
