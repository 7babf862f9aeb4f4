"""``RunningMeanStd``: the statistics that normalising wrappers keep."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmill.errors import ConfigError, InputError, MissingConfigError
from stepmill.wrappers.running_mean_std import RunningMeanStd


def shown(values: Any, shape: tuple[int, ...] = ()) -> RunningMeanStd:
    """Statistics that were shown values one by one."""
    statistics = RunningMeanStd(shape)
    for value in values:
        statistics.update(value)
    return statistics


def test_mean_and_variance_of_1_2_3_4() -> None:
    statistics = shown([1, 2, 3, 4])
    assert (statistics.count, statistics.mean, statistics.var) == (4, 2.5, 1.25)
    assert statistics.std == np.sqrt(1.25)


def test_each_feature_has_a_mean_of_its_own() -> None:
    statistics = shown([[0, 1000]] * 5, (2,))
    assert statistics.mean.tolist() == [0, 1000]  # not [500, 500]: features are no batch
    assert statistics.var.tolist() == [0, 0]


def test_nothing_is_mixed_in_at_the_start() -> None:
    statistics = RunningMeanStd((2,))
    assert (statistics.count, statistics.mean.tolist(), statistics.var.tolist()) == (0, [0, 0], [1, 1])
    statistics.update([3, -4])
    assert (statistics.count, statistics.mean.tolist(), statistics.var.tolist()) == (1, [3, -4], [0, 0])


@pytest.mark.parametrize("offset", [0.0, 1e9, -1e12])
def test_a_large_offset_costs_no_digits(offset: float) -> None:
    values = np.array([4.0, 7.0, 13.0, 16.0]) + offset  # mean 10, variance 22.5
    one_by_one, batched, merged = shown(values), RunningMeanStd(), shown(values[:1])
    batched.update_batch(values)
    merged.merge(shown(values[1:]))
    for statistics in (one_by_one, batched, merged):
        assert statistics.mean == offset + 10
        assert statistics.var == pytest.approx(22.5, rel=1e-6)


def test_a_large_batch_has_an_exact_mean() -> None:
    statistics = RunningMeanStd((2,))
    statistics.update_batch(np.full((50_000, 2), 0.1))  # whose sum, rounded 50,000 times, is no 5,000
    assert statistics.mean.tolist() == [0.1, 0.1]
    assert statistics.var.tolist() == [0, 0]


def test_a_long_stream_with_an_offset_keeps_its_variance() -> None:
    statistics = RunningMeanStd()
    for _ in range(100):
        statistics.update_batch(np.tile([1e8 - 1, 1e8 + 1], 500))
    assert (statistics.count, statistics.mean) == (100_000, 1e8)
    assert statistics.var == pytest.approx(1, rel=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(st.lists(st.tuples(*[st.floats(-1e6, 1e6, width=32)] * 2), max_size=6), max_size=6),
    one_by_one=st.booleans(),
)
def test_merged_streams_equal_one_stream(parts: list[list[tuple[float, float]]], one_by_one: bool) -> None:
    merged = RunningMeanStd((2,))
    for part in parts:
        other = RunningMeanStd((2,))
        if one_by_one:
            other = shown(part, (2,))
        else:
            other.update_batch(np.array(part).reshape(-1, 2))
        merged.merge(other)
    everything = np.array([row for part in parts for row in part]).reshape(-1, 2)
    assert merged.count == len(everything)
    if len(everything):
        scale = max(1.0, float(np.abs(everything).max()))
        np.testing.assert_allclose(merged.mean, everything.mean(axis=0), rtol=0, atol=1e-13 * scale)
        np.testing.assert_allclose(merged.var, everything.var(axis=0), rtol=1e-9, atol=1e-13 * scale**2)
        assert (merged.var >= 0).all()


def test_merging_leaves_the_other_as_it_was() -> None:
    left, right = shown([1, 2]), shown([3, 4])
    left.merge(right)
    left.update(5)
    assert (right.count, right.mean, right.var) == (2, 3.5, 0.25)
    assert (left.count, left.mean, left.var) == (5, 3, 2)


def test_merging_with_itself_counts_all_twice() -> None:
    statistics = shown([1, 3])
    statistics.merge(statistics)
    assert (statistics.count, statistics.mean, statistics.var) == (4, 2, 1)


def test_an_empty_batch_and_an_empty_other_change_nothing() -> None:
    statistics = shown([1, 3])
    statistics.update_batch([])
    statistics.merge(RunningMeanStd())
    assert (statistics.count, statistics.mean, statistics.var) == (2, 2, 1)


def test_images_have_a_mean_a_pixel() -> None:
    dark, bright = np.zeros((2, 2, 3), np.uint8), np.full((2, 2, 3), 200, np.uint8)
    bright[0, 0, 0] = 0
    statistics = shown([dark, bright], (2, 2, 3))
    expected = np.full((2, 2, 3), 100.0)
    expected[0, 0, 0] = 0
    np.testing.assert_array_equal(statistics.mean, expected)
    np.testing.assert_array_equal(statistics.std, expected)


def test_what_it_hands_out_stays_as_it_was() -> None:
    statistics = shown([[1.0, 2.0]], (2,))
    mean, var, state = statistics.mean, statistics.var, statistics.state_dict()
    statistics.update([3, 8])
    assert mean.tolist() == state["mean"].tolist() == [1, 2]
    assert var.tolist() == state["squared_deviations"].tolist() == [0, 0]
    mean[:] = 99
    assert statistics.mean.tolist() == [2, 5]


def _through_npz(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    np.savez(file, **state)
    file.seek(0)
    return dict(np.load(file))


@pytest.mark.parametrize("way", ["state", "pickle", "npz"])
def test_saved_statistics_go_on_bit_for_bit(way: str) -> None:
    values = np.random.default_rng(0).normal(5, 3, (20, 2))
    saved = shown(values[:10], (2,))
    if way == "pickle":
        restored = pickle.loads(pickle.dumps(saved))
    else:
        state = saved.state_dict()
        restored = shown([[7, 7]], (2,))  # what it knew before is gone
        restored.load_state_dict(_through_npz(state) if way == "npz" else pickle.loads(pickle.dumps(state)))
        assert type(restored.count) is int
    for value in values[10:]:
        saved.update(value)
        restored.update(value)
    assert restored.count == saved.count == 20
    assert restored.mean.tobytes() == saved.mean.tobytes()
    assert restored.var.tobytes() == saved.var.tobytes()


def test_a_loaded_state_is_not_shared() -> None:
    state = shown([[1.0, 2.0]], (2,)).state_dict()
    statistics = RunningMeanStd((2,))
    statistics.load_state_dict(state)
    statistics.update([3, 4])
    assert state["mean"].tolist() == [1, 2]


BAD_STATES = {
    "no mapping": (5, ConfigError, "expected a state with count, mean, squared_deviations, got 5"),
    "a key is missing": ({"count": 1, "mean": [0, 0]}, MissingConfigError, "got one without squared_deviations"),
    "another shape": (
        {"count": 1, "mean": [0.0], "squared_deviations": [0, 0]},
        ConfigError,
        r"mean of shape \(2,\), got \(1,\)",
    ),
    "a negative count": ({"count": -1, "mean": [0, 0], "squared_deviations": [0, 0]}, ConfigError, "got -1"),
    "a bool as count": ({"count": True, "mean": [0, 0], "squared_deviations": [0, 0]}, ConfigError, "got True"),
    "not a number": ({"count": 1, "mean": [0, np.nan], "squared_deviations": [0, 0]}, ConfigError, "finite.*got nan"),
    "no numbers": ({"count": 1, "mean": "ab", "squared_deviations": [0, 0]}, ConfigError, "numbers, got 'ab'"),
    "negative squares": ({"count": 1, "mean": [0, 0], "squared_deviations": [0, -1]}, ConfigError, "deviations >= 0"),
}


@pytest.mark.parametrize("case", BAD_STATES)
def test_a_bad_state_is_refused_and_changes_nothing(case: str) -> None:
    state, error, message = BAD_STATES[case]
    statistics = shown([[1, 2], [3, 4]], (2,))
    with pytest.raises(error, match=message):
        statistics.load_state_dict(state)
    assert (statistics.count, statistics.mean.tolist(), statistics.var.tolist()) == (2, [2, 3], [1, 1])


@pytest.mark.parametrize(
    ("call", "argument", "message"),
    [
        ("update", [1, 2, 3], r"one observation of shape \(2,\), got \(3,\)"),
        ("update", 1, r"one observation of shape \(2,\), got \(\)"),
        ("update", [1, np.inf], "finite numbers, got inf"),
        ("update", "ab", "expected numbers, got 'ab'"),
        ("update_batch", [1, 2], r"observations of shape \(n, 2\), got \(2,\)"),
        ("update_batch", [[1, np.nan]], "finite numbers, got nan"),
        ("update_batch", 1, r"observations of shape \(n, 2\), got \(\)"),
        ("merge", RunningMeanStd((3,)), r"of shape \(2,\), got RunningMeanStd\(shape=\(3,\), count=0\)"),
        ("merge", 5, "got 5"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(call: str, argument: Any, message: str) -> None:
    statistics = shown([[1, 2], [3, 4]], (2,))
    with pytest.raises(InputError, match=message):
        getattr(statistics, call)(argument)
    assert (statistics.count, statistics.mean.tolist(), statistics.var.tolist()) == (2, [2, 3], [1, 1])


@pytest.mark.parametrize("shape", ["ab", -1, (2, -1), None, 1.5])
def test_a_shape_that_cannot_be_is_refused(shape: Any) -> None:
    with pytest.raises(ConfigError, match="RunningMeanStd: expected the shape of an array, got "):
        RunningMeanStd(shape)
