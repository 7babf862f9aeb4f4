"""``FlatObs``: one vector of every observation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from stepmill.envs.env_info import element_info_of
from stepmill.errors import SpaceError
from stepmill.wrappers.observations import FlatObs
from support.envs.scripted import NESTED, POINT, CyclingEnv

FLOAT_IMAGE = spaces.Box(0, 1, (1, 2, 2), np.float32)


def test_a_nested_observation_becomes_one_vector() -> None:
    observation = {
        "camera": np.arange(6, dtype=np.uint8).reshape(2, 3, 1),
        "gear": np.int64(1),
        "rest": (np.array([1, 0], np.int8), np.float64(0.5)),
    }
    env = FlatObs(CyclingEnv([observation], observation_space=NESTED))
    flat, _ = env.reset()
    assert flat.tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 1, 1, 0, 0.5]
    assert flat.dtype == np.float32
    assert flat in env.observation_space
    assert env.observation_space.low.tolist() == [0] * 11 + [-1]
    assert env.observation_space.high.tolist() == [255] * 6 + [1] * 6


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (spaces.Discrete(3), 2, [0, 0, 1]),
        (spaces.Discrete(3, start=5), 5, [1, 0, 0]),
        (spaces.MultiBinary((2, 2)), np.array([[1, 0], [1, 1]], np.int8), [1, 0, 1, 1]),
        (FLOAT_IMAGE, np.array([[[0, 0.25], [0.5, 1]]], np.float32), [0, 0.25, 0.5, 1]),
        (spaces.Box(-5, 5, (), np.int64), np.array(-3), [-3]),
        (spaces.Tuple([spaces.Discrete(2), spaces.Discrete(2)]), (1, 0), [0, 1, 1, 0]),
        (spaces.Box(-np.inf, np.inf, (1,), np.float64), np.array([2.5]), [2.5]),
        (spaces.Box(-1.7e308, 1.7e308, (1,), np.float64), np.array([2.5]), [2.5]),
    ],
)
def test_each_kind_of_space_has_its_form(space: spaces.Space[Any], value: Any, expected: list[float]) -> None:
    env = FlatObs(CyclingEnv([value], observation_space=space))
    flat, _ = env.reset()
    assert flat.tolist() == expected
    assert flat in env.observation_space


def test_a_multi_discrete_needs_the_size_that_its_shape_does_not_tell() -> None:
    space = spaces.Dict({"dice": spaces.MultiDiscrete([2, 3], start=[0, 1])})
    script = CyclingEnv([{"dice": np.array([1, 1])}], observation_space=space)
    with pytest.raises(
        SpaceError, match="FlatObs: expected size=5, which does not follow from the shape of a MultiDiscrete, got no"
    ):
        FlatObs(script)
    env = FlatObs(script, size=5)
    assert env.reset()[0].tolist() == [0, 1, 1, 0, 0]
    assert FlatObs.new_shape({"dice": (2,)}, (3,), (1,), size=5) == ((5,), (3,), (1,))
    with pytest.raises(SpaceError, match=r"FlatObs: expected size 5 for Dict\('dice': .*, got 4"):
        FlatObs(script, size=4)


def test_the_parts_of_a_dict_come_in_the_order_of_its_keys() -> None:
    one = spaces.Box(0, 9, (1,), np.float32)
    observation = {"b": np.array([1.0]), "a": np.array([2.0])}
    for space, expected in [
        (spaces.Dict({"b": one, "a": one}), [2, 1]),
        (spaces.Dict([("b", one), ("a", one)]), [1, 2]),
    ]:
        assert FlatObs(CyclingEnv([observation], observation_space=space)).reset()[0].tolist() == expected


def test_a_flat_observation_stays_as_it_was() -> None:
    env = FlatObs(CyclingEnv([(1, 2), (3, 4)]))
    first, _ = env.reset()
    env.step(0)
    assert first.tolist() == [1, 2]


LEAVES = st.one_of(
    st.builds(
        lambda shape, dtype: spaces.Box(0, 100, tuple(shape), dtype),
        st.lists(st.integers(1, 3), max_size=3),
        st.sampled_from([np.uint8, np.int64, np.float32, np.float64]),
    ),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), st.integers(-2, 2)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 4), min_size=1, max_size=3)),
)
TREES = st.recursive(
    LEAVES,
    lambda child: st.one_of(
        st.builds(spaces.Tuple, st.lists(child, min_size=1, max_size=3)),
        st.builds(spaces.Dict, st.dictionaries(st.sampled_from("abc"), child, min_size=1, max_size=3)),
    ),
    max_leaves=5,
)


@settings(max_examples=60, deadline=None)
@given(space=TREES, seed=st.integers(0, 1000))
def test_flat_observations_equal_gymnasiums_and_have_the_new_shape(space: spaces.Space[Any], seed: int) -> None:
    space.seed(seed)
    observation = space.sample()
    size = spaces.utils.flatdim(space) if "MultiDiscrete" in str(space) else None
    env = FlatObs(CyclingEnv([observation], observation_space=space), size=size)
    flat, _ = env.reset()
    np.testing.assert_array_equal(flat, spaces.utils.flatten(space, observation).astype(np.float32))
    assert flat in env.observation_space
    assert FlatObs.new_shape(element_info_of(space).shape, (3,), (1,), size=size) == (flat.shape, (3,), (1,))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), r"observation, got Text\("),
        (spaces.Dict({"a": spaces.Tuple([POINT, spaces.Sequence(POINT)])}), r"at \['a'\]\[1\], got Sequence"),
        (spaces.Graph(POINT, None), "observation, got Graph"),
        (spaces.Dict({}), r"observation, got Dict\(\)"),
        (spaces.Tuple([POINT, spaces.Tuple([])]), r"at \[1\], got Tuple\(\)"),
    ],
)
def test_observations_without_a_fixed_form_are_refused(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(SpaceError, match=f"FlatObs: expected a Box, Discrete,.*{message}"):
        FlatObs(CyclingEnv(observation_space=space))


def test_a_shape_that_is_none_is_refused() -> None:
    with pytest.raises(SpaceError, match=r"FlatObs: expected the shape of an array.*, got None"):
        FlatObs.new_shape({"text": None}, (3,), (1,))
