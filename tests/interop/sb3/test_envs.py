"""Attributes, methods, wrappers and pictures of single envs, by SB3's ``indices``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.monitor import Monitor

from stepmill.errors import EnvIdError, UnknownAttributeError, UnsupportedError
from stepmill.interop.sb3 import StepmillVecEnv, make_vec_env
from support.envs.talkative import TalkativeEnv

pytestmark = pytest.mark.usefixtures("server")


@pytest.fixture(params=["inline", "process"])
def vec_env(request: pytest.FixtureRequest) -> Iterator[StepmillVecEnv]:
    made = make_vec_env(TalkativeEnv, 3, seed=1, backend=request.param, render_mode="rgb_array")
    yield made
    made.close()


@pytest.fixture
def native() -> Iterator[StepmillVecEnv]:
    made = make_vec_env("CartPole-v1", 3, seed=1, render_mode="rgb_array")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (None, [0, 1, 2]),
        (1, [1]),
        (np.int64(2), [2]),
        ([0, 2], [0, 2]),
        ((2, 0), [2, 0]),
        (-1, [2]),
        (range(2), [0, 1]),
    ],
)
def test_indices(vec_env: StepmillVecEnv, indices: Any, expected: list[int]) -> None:
    for i in range(3):
        vec_env.set_attr("colour", i, indices=i)
    assert vec_env.get_attr("colour", indices) == expected
    assert vec_env.env_method("repeat", 1, indices=indices, two=2) == [((1,), {"two": 2})] * len(expected)
    assert vec_env.env_is_wrapped(TimeLimit, indices) == [False] * len(expected)
    vec_env.set_attr("colour", "blue", indices)
    assert [i for i, colour in enumerate(vec_env.get_attr("colour")) if colour == "blue"] == sorted(expected)


@pytest.mark.parametrize("indices", [3, [0, -4], "a", [0.5]])
def test_bad_indices(vec_env: StepmillVecEnv, indices: Any) -> None:
    for call in (vec_env.get_attr, vec_env.env_method):
        with pytest.raises(EnvIdError, match="expected None, or one or several of"):
            call("colour", indices=indices)


def test_a_list_is_one_value(vec_env: StepmillVecEnv) -> None:
    vec_env.set_attr("colour", ["a", "b", "c"])
    assert vec_env.get_attr("colour") == [["a", "b", "c"]] * 3


def test_methods_may_have_any_keywords(vec_env: StepmillVecEnv) -> None:
    assert vec_env.env_method("repeat", name="a", env_ids=[1], indices=0) == [((), {"name": "a", "env_ids": [1]})]


def test_has_attr(vec_env: StepmillVecEnv, native: StepmillVecEnv) -> None:
    assert vec_env.has_attr("colour")
    assert vec_env.has_attr("unpicklable")
    assert not vec_env.has_attr("taste")
    with pytest.raises(AttributeError):
        vec_env.get_attr("taste")
    assert native.has_attr("np_random")
    assert not native.has_attr("taste")


def test_native_envs_have_attributes_but_no_methods(native: StepmillVecEnv) -> None:
    assert native.get_attr("max_episode_steps", [0, 1]) == [500, 500]
    with pytest.raises(UnknownAttributeError, match="taste"):
        native.get_attr("taste")
    with pytest.raises(UnsupportedError, match="CartPole-v1 is native and has no Python object"):
        native.env_method("repeat")
    with pytest.raises(UnsupportedError, match="set_attr: CartPole-v1 is native"):
        native.set_attr("gravity", 1)


def test_wrappers(native: StepmillVecEnv) -> None:
    class OwnLimit(TimeLimit[Any, Any]):
        pass

    vec_env = StepmillVecEnv([TalkativeEnv, lambda: OwnLimit(TalkativeEnv(), 5)], backend="process")
    assert vec_env.env_is_wrapped(Monitor) == [True, True]
    assert vec_env.env_is_wrapped(gymnasium.Wrapper, 1) == [True]
    assert vec_env.env_is_wrapped(TimeLimit) == [False, True]
    assert vec_env.env_is_wrapped(OwnLimit) == [False, True]
    vec_env.close()
    assert native.env_is_wrapped(Monitor, indices=[0, 2]) == [True, True]
    assert native.env_is_wrapped(TimeLimit) == [False] * 3


def test_pictures(vec_env: StepmillVecEnv, native: StepmillVecEnv) -> None:
    for one, shape in ((vec_env, (4, 6, 3)), (native, (400, 600, 3))):
        one.reset()
        images = one.get_images()
        assert [image.shape for image in images] == [shape] * 3
        tiled = one.render()
        assert tiled.shape == (2 * shape[0], 2 * shape[1], 3)
        np.testing.assert_array_equal(tiled[: shape[0], : shape[1]], images[0])
        np.testing.assert_array_equal(one.env_method("render", indices=1)[0], images[1])
        with pytest.warns(UserWarning, match="render modes are determined"):
            assert one.render("ansi") is None
        assert one.metadata["render_fps"] in (12, 50)


def test_no_pictures_without_a_mode() -> None:
    vec_env = make_vec_env("CartPole-v1", 2, seed=1)
    with pytest.warns(UserWarning, match=r"get_images: expected envs with render_mode='rgb_array', got None"):
        assert vec_env.get_images() == [None, None]
    vec_env.close()
