"""The calculation of what a cluster gives (docs/ray.md), by hand: numbers that can be worked out without it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NETWORK = 1e9
MANY = 10**9


@pytest.fixture
def ray_sizing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)
    from benchmarks import ray_sizing

    return ray_sizing


def way(ray_sizing, **costs):
    """A node steps 100 envs in 10 ms, a call takes 2 ms, and the driver 1 ms for each answer, whose bytes are few."""
    usual = {"rows": 100, "steps_per_s": 10_000, "call_s": 2e-3, "driver_s": 1e-3, "bytes": 1, "overlaps": False}
    return ray_sizing.Way(**{**usual, **costs})


def test_in_step_the_answers_come_one_after_another(ray_sizing) -> None:
    one = way(ray_sizing)
    assert one.rate(1, NETWORK) == pytest.approx(100 / 13e-3)  # 2 + 10 + 1 ms
    assert one.rate(4, NETWORK) == pytest.approx(400 / 16e-3)
    assert one.rate(MANY, NETWORK) == pytest.approx(one.limit(NETWORK)) == pytest.approx(100_000)
    # From so many on, more than half of the time is the driver's.
    assert one.nodes_at_limit(NETWORK) == pytest.approx(12)
    assert one.rate(12, NETWORK) == pytest.approx(50_000)


def test_where_nodes_work_meanwhile_the_slowest_part_decides(ray_sizing) -> None:
    one = way(ray_sizing, overlaps=True)
    assert one.rate(1, NETWORK) == pytest.approx(100 / 12e-3)
    assert one.rate(6, NETWORK) == pytest.approx(600 / 12e-3)
    assert one.nodes_at_limit(NETWORK) == pytest.approx(12)
    assert one.rate(12, NETWORK) == pytest.approx(one.rate(13, NETWORK)) == pytest.approx(100_000)


@pytest.mark.parametrize(("size", "limit", "by"), [(1, 100_000, "driver"), (20_000, 50_000, "network")])
def test_large_rows_fill_the_network(ray_sizing, size: int, limit: float, by: str) -> None:
    for overlaps in (False, True):
        one = way(ray_sizing, bytes=size, overlaps=overlaps)
        assert one.limit(NETWORK) == pytest.approx(limit)
        assert one.rate(MANY, NETWORK) == pytest.approx(limit)
        assert one.limited_by(NETWORK) == by


def test_the_ways_from_what_was_measured(ray_sizing) -> None:
    part = {"driver_call_s": 1e-4}
    case = {"num_envs": 64, "steps_per_s": 1e4, "policy_steps_per_s": 9e3, "order_bytes": 8, "answer_bytes": 32}
    case |= {"driver_row_s": 1e-6, "driver_rollout_row_s": 1e-7, "rollout_bytes": 20}
    case |= {"call_s": 1e-3, "call2_s": 5e-4, "rollout_call_s": 1e-5}
    found = ray_sizing.ways(part, case, rollout_steps=10)
    step, ahead, rollout = found["step"], found["async"], found["rollout"]
    assert [one.rows for one in (step, ahead, rollout)] == [64, 32, 640]
    assert [one.overlaps for one in (step, ahead, rollout)] == [False, True, False]
    # A round of one node: the call, in which the driver's part is contained, its rows, and the steps.
    assert step.rate(1, NETWORK) == pytest.approx(64 / (1e-3 + 64e-6 + 64 / 1e4))
    assert ahead.rate(1, NETWORK) == pytest.approx(32 / (5e-4 + 32 / 1e4))
    assert rollout.rate(1, NETWORK) == pytest.approx(640 / (1e-4 + 640 / 9e3 + 1e-4 + 640e-7))
