"""An env that breaks its own space: every wrapper that reads observations says so, and makes nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stepmill import make
from stepmill.errors import EnvError, ObservationError
from stepmill.wrappers import (
    FlatObs,
    FrameStack,
    MaxAndSkipEnv,
    ObsNormEnv,
    ObsTransposeWrapper,
    RamWrapper,
    ScaledFloatFrame,
    StaticObsNorm,
    WarpFrame,
)
from support.envs.scripted import Showing

Wrapper = Callable[..., gymnasium.Env[Any, Any]]

OF_IMAGES: dict[str, Wrapper] = {
    "WarpFrame": WarpFrame,
    "ObsTransposeWrapper": ObsTransposeWrapper,
    "ScaledFloatFrame": ScaledFloatFrame,
    "StaticObsNorm": lambda env: StaticObsNorm(env, 0.0, 1.0),
    "FlatObs": FlatObs,
    "FrameStack": FrameStack,
    "ObsNormEnv": ObsNormEnv,
    "MaxAndSkipEnv": MaxAndSkipEnv,
}
GOOD = np.zeros((8, 8, 3), np.uint8)
IMAGE = spaces.Box(0, 255, GOOD.shape, np.uint8)
IMAGES = r": expected numbers of shape \(8, 8, 3\) and type uint8"


def refused(name: str, env: gymnasium.Env[Any, Any], says: str) -> None:
    """Takes the reset, and refuses the step."""
    env.reset()
    with pytest.raises(ObservationError, match=f"^{name}: observation{says}"):
        env.step(0)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (
            np.zeros((8, 8), np.float32),
            IMAGES + r", got an array of shape \(8, 8\) and type float32",
        ),
        (
            np.zeros((8, 8, 4), np.uint8),
            IMAGES + r", got an array of shape \(8, 8, 4\) ",
        ),
        (None, IMAGES + r", got None"),
        ([[1], [2, 3]], IMAGES + r", got \[\[1\], \[2, 3\]\]"),
        (
            np.full((8, 8, 3), 0.5),
            r": expected numbers of shape \(8, 8, 3\) that uint8 can hold, got an array of .* type float64",
        ),
        (
            np.full((8, 8, 3), -1),
            r": expected numbers of shape \(8, 8, 3\) that uint8 can hold, got an array of .* type int64",
        ),
    ],
    ids=["an axis less", "a channel more", "nothing", "no array", "fractions", "out of range"],
)
@pytest.mark.parametrize("name", OF_IMAGES)
def test_what_is_no_observation_of_the_space_is_an_error(name: str, bad: Any, says: str) -> None:
    refused(name, OF_IMAGES[name](Showing(IMAGE, GOOD, bad)), says)


def test_a_bad_first_observation_is_one_too() -> None:
    says = r"^WarpFrame: observation" + IMAGES + r", got an array of shape \(8,\)"
    with pytest.raises(ObservationError, match=says):
        WarpFrame(Showing(IMAGE, np.zeros(8, np.uint8))).reset()


def test_memory_of_another_shape_is_no_column() -> None:
    ram = spaces.Box(0, 255, (128,), np.uint8)
    refused(
        "RamWrapper",
        RamWrapper(Showing(ram, np.zeros(128, np.uint8), np.zeros((8, 8), np.uint8))),
        r": expected numbers of shape \(128,\) and type uint8, got an array of shape \(8, 8\)",
    )


def test_frozen_statistics_look_at_the_shape_too() -> None:
    vector = spaces.Box(-1, 1, (2,))
    env = ObsNormEnv(Showing(vector, np.zeros(2), np.zeros(1)), training=False)
    refused(
        "ObsNormEnv",
        env,
        r": expected numbers of shape \(2,\) and type float32, got an array of .*: \[0\.\]",
    )


@pytest.mark.parametrize("name", OF_IMAGES)
def test_whole_numbers_in_other_types_are_taken(name: str) -> None:
    env = OF_IMAGES[name](Showing(IMAGE, np.full(IMAGE.shape, 7.0), np.full(IMAGE.shape, 7)))
    exact = OF_IMAGES[name](Showing(IMAGE, np.full(IMAGE.shape, 7, np.uint8)))
    for observation, expected in ((env.reset()[0], exact.reset()[0]), (env.step(0)[0], exact.step(0)[0])):
        assert env.observation_space.contains(observation)
        np.testing.assert_array_equal(observation, expected)


# ---- parts of an observation ---------------------------------------------------------------------

NESTED = spaces.Dict({"eye": IMAGE, "ear": spaces.Tuple((spaces.Box(-1, 1, (2,)), spaces.MultiBinary(3)))})
EARS = (np.zeros(2, np.float32), np.zeros(3, np.int8))


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (GOOD, r": expected a dict with the keys 'ear', 'eye', got an array of shape \(8, 8, 3\)"),
        ({"eye": GOOD}, r": expected a dict with the keys 'ear', 'eye', got a dict with the keys 'eye'"),
        (
            {"eye": GOOD[0], "ear": EARS},
            r"\['eye'\]" + IMAGES + r", got an array of shape \(8, 3\)",
        ),
        ({"eye": GOOD, "ear": EARS[:1]}, r"\['ear'\]: expected a tuple of 2 parts, got \(array"),
        (
            {"eye": GOOD, "ear": (EARS[1], EARS[1])},
            r"\['ear'\]\[0\]: expected numbers of shape \(2,\) and type float32, got an array of .*: \[0 0 0\]",
        ),
    ],
    ids=["no dict", "a key less", "a leaf in a dict", "a part less", "a leaf in a tuple"],
)
@pytest.mark.parametrize("wrapper", [FlatObs, FrameStack])
def test_the_error_says_which_part_is_wrong(wrapper: Any, bad: Any, says: str) -> None:
    refused(wrapper.__name__, wrapper(Showing(NESTED, {"eye": GOOD, "ear": EARS}, bad)), says)


@pytest.mark.parametrize("wrapper", [WarpFrame, ObsTransposeWrapper, ScaledFloatFrame])
def test_an_image_in_a_dict_is_looked_at(wrapper: Any) -> None:
    space = spaces.Dict({"eye": IMAGE})
    for bad, says in (
        (
            {"eye": GOOD[0]},
            r"\['eye'\]" + IMAGES + r", got an array of shape \(8, 3\)",
        ),
        ({"nose": GOOD}, r": expected a dict with the keys 'eye', got a dict with the keys 'nose'"),
        (None, ": expected a dict with the keys 'eye', got None"),
    ):
        refused(wrapper.__name__, wrapper(Showing(space, {"eye": GOOD}, bad), dict_key="eye"), says)


def test_statistics_of_a_dict_miss_a_key() -> None:
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Box(-1, 1, (2,))})
    env = ObsNormEnv(Showing(space, {"a": np.zeros(2), "b": np.zeros(2)}, {"a": np.zeros(2)}))
    refused("ObsNormEnv", env, r": expected a dict with the keys 'a', 'b', got a dict with the keys 'a'")


@pytest.mark.parametrize(
    ("space", "good", "bad"),
    [
        (spaces.Discrete(3), 0, 3),
        (spaces.Discrete(3), 0, -1),
        (spaces.MultiDiscrete([2, 3]), [0, 0], [2, 0]),
        (spaces.MultiBinary(2), [0, 1], [0, 2]),
    ],
    ids=str,
)
def test_a_number_beyond_its_places_is_not_taken_for_another(space: Any, good: Any, bad: Any) -> None:
    size = spaces.utils.flatdim(space)
    refused("FlatObs", FlatObs(Showing(space, good, bad), size=size), rf": expected {type(space).__name__}\(.*\), got ")


def test_a_pool_says_which_env_it_was() -> None:
    with make(lambda: WarpFrame(Showing(IMAGE, GOOD, GOOD[0])), num_envs=1, backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=r"env 0 failed in step .*: WarpFrame: observation: expected numbers"):
            pool.step(np.zeros(1, np.int64))
