"""The wrappers that change images, against numbers worked out by hand and against Gymnasium's."""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import GrayscaleObservation, ReshapeObservation, ResizeObservation

from stepmill.errors import ConfigError, MissingPackageError, SpaceError
from stepmill.wrappers import FrameStack, ObsTransposeWrapper, RamWrapper, ScaledFloatFrame, WarpFrame
from support.envs.scripted import DOUBLES, FLOATS, GREY, RAM, RGB, SCENE, VECTOR, ChanceEnv, Showing


def first(env: gymnasium.Env[Any, Any]) -> Any:
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    return observation


def both(ours: gymnasium.Env[Any, Any], theirs: gymnasium.Env[Any, Any], steps: int = 10) -> list[tuple[Any, Any]]:
    """Observations of two envs that are stepped alike."""
    pairs = [(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])]
    for _ in range(steps):
        one, other = ours.step(2), theirs.step(2)
        pairs.append((one[0], other[0]))
        assert one[1:4] == other[1:4]
        if one[2] or one[3]:
            pairs.append((ours.reset()[0], theirs.reset()[0]))
    return pairs


def image_space(image: np.ndarray, low: float = 0, high: float = 255) -> spaces.Box:
    return spaces.Box(low, high, image.shape, image.dtype.type)


# ---- WarpFrame ----------------------------------------------------------------------------------


def quadrants(dtype: Any, *colours: tuple[float, ...]) -> np.ndarray:
    """A 4x4 image of four coloured squares: two above, two below."""
    a, b, c, d = (np.broadcast_to(np.array(colour, dtype), (2, 2, 3)) for colour in colours)
    return np.concatenate([np.concatenate([a, b], axis=1), np.concatenate([c, d], axis=1)])


def test_colours_become_grey_by_the_usual_weights() -> None:
    image = quadrants(np.uint8, (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255))
    warped = first(WarpFrame(Showing(image_space(image), image), 2))
    assert warped.dtype == np.uint8
    assert warped.tolist() == [[76, 150], [29, 255]]  # 0.299, 0.587 and 0.114 of 255, rounded


def test_float_images_stay_floats() -> None:
    image = quadrants(np.float32, (1, 0, 0), (0, 1, 0), (0, 0, 1), (0.5, 0.5, 0.5))
    env = WarpFrame(Showing(image_space(image, 0, 1), image), 2)
    assert env.observation_space == spaces.Box(0, 1, (2, 2), np.float32)
    np.testing.assert_allclose(first(env), [[0.299, 0.587], [0.114, 0.5]], rtol=1e-6)


def test_doubles_become_float32() -> None:
    image = quadrants(np.float64, (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1))
    env = WarpFrame(Showing(image_space(image, 0, 1), image), 2)
    assert env.observation_space.dtype == first(env).dtype == np.float32


def test_each_pixel_is_the_average_of_its_area() -> None:
    image = np.array([[0, 10, 100, 100], [20, 30, 100, 200], [1, 1, 7, 7], [1, 1, 7, 7]], np.uint8)
    env = WarpFrame(Showing(image_space(image), image), 2)
    assert first(env).tolist() == [[15, 125], [1, 7]]


def test_the_size_is_height_and_then_width() -> None:
    image = np.arange(4 * 6, dtype=np.uint8).reshape(4, 6) * 4
    env = WarpFrame(Showing(image_space(image), image), (2, 3))
    assert env.observation_space == spaces.Box(0, 255, (2, 3), np.uint8)
    assert first(env).tolist() == [[14, 22, 30], [62, 70, 78]]


def test_one_channel_is_grey_already() -> None:
    image = np.arange(16, dtype=np.uint8).reshape(4, 4)
    plain = first(WarpFrame(Showing(image_space(image), image), 3))
    channel = image[:, :, np.newaxis]
    assert np.array_equal(first(WarpFrame(Showing(image_space(channel), channel), 3)), plain)


def test_a_float_image_never_leaves_its_bounds() -> None:
    # Grey and averaged in float32, white is a little more than white.
    for high in (0.3, 0.7, 1.0, 2.5):
        image = np.full((7, 5, 3), high, np.float32)
        for size in ((3, 2), (2, 3), (5, 4)):
            env = WarpFrame(Showing(image_space(image, -high, high), image, -image), size)
            assert first(env).max() <= np.float32(high)
            assert env.step(0)[0].min() >= np.float32(-high)


def test_the_bounds_are_the_widest_of_the_image() -> None:
    low, high = np.zeros((4, 4, 3), np.float32), np.ones((4, 4, 3), np.float32)
    low[0, 0, 1], high[2, 2, 2] = -3, 9
    env = WarpFrame(ChanceEnv(spaces.Box(low, high, dtype=np.float32)), 4)
    assert env.observation_space == spaces.Box(-3, 9, (4, 4), np.float32)


def test_images_without_bounds_are_taken() -> None:
    image = np.full((4, 4), 1e6, np.float32)
    env = WarpFrame(Showing(image_space(image, -np.inf, np.inf), image), 2)
    assert first(env).tolist() == [[1e6, 1e6], [1e6, 1e6]]


def test_resizing_is_that_of_gymnasium() -> None:
    for size in ((5, 6), (7, 4), (20, 24)):
        for one, other in both(WarpFrame(ChanceEnv(GREY), size), ResizeObservation(ChanceEnv(GREY), size)):
            assert np.array_equal(one, other)


def test_grey_is_that_of_gymnasium_where_the_weights_do_not_matter() -> None:
    # Gymnasium weighs the colours otherwise (0.2125, 0.7154, 0.0721); where all three are equal nobody can tell.
    greys = [np.repeat(np.full((6, 6, 1), value, np.uint8), 3, axis=2) for value in (0, 3, 128, 255)]
    ours = WarpFrame(Showing(image_space(greys[0]), *greys), 3)
    theirs = ResizeObservation(GrayscaleObservation(Showing(image_space(greys[0]), *greys)), (3, 3))
    for one, other in both(ours, theirs, steps=4):
        np.testing.assert_allclose(one.astype(int), other.astype(int), atol=1)  # Gymnasium rounds down


def test_a_dict_observation_is_warped_under_its_key() -> None:
    inner = ChanceEnv(SCENE)
    image, speed = inner.reset(seed=4)[0].values()
    env = WarpFrame(ChanceEnv(SCENE), 5, dict_key="image")
    assert env.observation_space == spaces.Dict({"image": spaces.Box(0, 255, (5, 5), np.uint8), "speed": VECTOR})
    observation = env.reset(seed=4)[0]
    assert np.array_equal(observation["speed"], speed)
    assert np.array_equal(observation["image"], first(WarpFrame(Showing(image_space(image), image), 5)))


@pytest.mark.parametrize(
    "space",
    [
        VECTOR,
        spaces.Box(0, 255, (3, 8, 8), np.uint8),
        spaces.Box(0, 255, (8, 8, 4), np.uint8),
        spaces.Box(0, 255, (0, 8, 3), np.uint8),
        spaces.Box(0, 255, (8, 8, 3), np.int64),
        spaces.Discrete(3),
        SCENE,
        spaces.Tuple((RGB,)),
    ],
    ids=str,
)
def test_warp_frame_refuses_what_is_no_image(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match=r"WarpFrame: expected .*, got (Box|Discrete|Dict|Tuple)\("):
        WarpFrame(ChanceEnv(space))


@pytest.mark.parametrize("wrapper", [WarpFrame, ScaledFloatFrame, ObsTransposeWrapper])
def test_a_dict_key_needs_a_dict_with_that_key_and_an_image_there(wrapper: Any) -> None:
    name = wrapper.__name__
    with pytest.raises(SpaceError, match=f"{name}: expected a Dict observation space with the key 'eye', got Dict"):
        wrapper(ChanceEnv(SCENE), dict_key="eye")
    with pytest.raises(SpaceError, match=f"{name}: expected a Dict observation space with the key 'eye', got Box"):
        wrapper(ChanceEnv(RGB), dict_key="eye")
    with pytest.raises(SpaceError, match=f"{name}: expected a Box observation space, got Discrete"):
        wrapper(ChanceEnv(spaces.Dict({"eye": spaces.Discrete(2)})), dict_key="eye")
    with pytest.raises(SpaceError, match=f"{name}: expected a Box observation space, or dict_key=..., got Dict"):
        wrapper(ChanceEnv(SCENE))
    with pytest.raises(SpaceError, match=f"{name}: expected "):
        wrapper(ChanceEnv(SCENE), dict_key="speed")


@pytest.mark.parametrize("size", [0, -1, 1.5, "84", True, None, (84,), (84, 84, 84), (84, 0), (84, None)])
def test_a_size_that_cannot_be_is_an_error(size: Any) -> None:
    with pytest.raises(ConfigError, match=r"WarpFrame: size: expected a whole number.*, got"):
        WarpFrame(ChanceEnv(RGB), size)
    with pytest.raises(ConfigError, match=r"WarpFrame: size: expected a whole number.*, got"):
        WarpFrame.new_shape((8, 8, 3), (2,), (1,), size=size)


def test_warp_frame_says_that_it_needs_opencv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingPackageError, match=r"WarpFrame needs opencv-python-headless.*stepmill\[wrappers\]"):
        WarpFrame(ChanceEnv(RGB))


# ---- ScaledFloatFrame ---------------------------------------------------------------------------


def test_bytes_are_scaled_by_255() -> None:
    image = np.arange(256, dtype=np.uint8).reshape(16, 16)
    env = ScaledFloatFrame(Showing(image_space(image), image))
    assert env.observation_space == spaces.Box(0, 1, (16, 16), np.float32)
    scaled = first(env)
    assert scaled.dtype == np.float32
    assert (scaled.min(), scaled.max(), scaled[3, 3]) == (0, 1, np.float32(0.2))
    assert np.array_equal(scaled, (np.arange(256) / 255).astype(np.float32).reshape(16, 16))


def test_floats_are_scaled_by_their_bounds() -> None:
    values = np.array([-1.0, 0.5, 2.0], np.float32)
    assert first(ScaledFloatFrame(Showing(image_space(values, -1, 2), values))).tolist() == [0.0, 0.5, 1.0]


def test_bounds_may_differ_from_pixel_to_pixel() -> None:
    low, high = np.array([0, -10, 5], np.int64), np.array([4, 10, 5], np.int64)
    env = ScaledFloatFrame(Showing(spaces.Box(low, high, dtype=np.int64), np.array([1, 5, 5])))
    assert first(env).tolist() == [0.25, 0.75, 0.0]  # where low is high there is nothing to tell


def test_wide_bounds_do_not_overflow() -> None:
    largest = np.finfo(np.float32).max
    values = np.array([-largest, 0, largest], np.float32)
    assert first(ScaledFloatFrame(Showing(image_space(values, -largest, largest), values))).tolist() == [0, 0.5, 1]


def test_scaling_a_dict_observation_leaves_its_other_parts() -> None:
    inner, env = ChanceEnv(SCENE), ScaledFloatFrame(ChanceEnv(SCENE), dict_key="image")
    for raw, scaled in [(b, a) for a, b in both(env, inner, steps=3)]:
        assert np.array_equal(scaled["speed"], raw["speed"])
        np.testing.assert_allclose(scaled["image"], raw["image"] / 255.0, rtol=1e-6)


@pytest.mark.parametrize(
    "space",
    [
        VECTOR,
        spaces.Box(np.array([0, -np.inf]), np.array([1, 1]), dtype=np.float64),
        spaces.Box(-np.finfo(np.float64).max, np.finfo(np.float64).max, (2,), np.float64),
        spaces.Discrete(3),
        spaces.MultiBinary(3),
        SCENE,
    ],
    ids=str,
)
def test_scaled_float_frame_refuses_what_has_no_finite_bounds(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match=r"ScaledFloatFrame: expected .*, got (Box|Discrete|MultiBinary|Dict)\("):
        ScaledFloatFrame(ChanceEnv(space))


# ---- ObsTransposeWrapper ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_channels_come_first(dtype: Any) -> None:
    image = np.arange(12).reshape(2, 3, 2).astype(dtype)
    turned = first(ObsTransposeWrapper(Showing(image_space(image), image)))
    assert turned.dtype == dtype
    assert turned.tolist() == [[[0, 2, 4], [6, 8, 10]], [[1, 3, 5], [7, 9, 11]]]
    assert turned.flags.c_contiguous


def test_the_bounds_turn_with_the_pixels() -> None:
    high = np.arange(1, 13, dtype=np.uint8).reshape(2, 3, 2)
    env = ObsTransposeWrapper(ChanceEnv(spaces.Box(np.zeros_like(high), high, dtype=np.uint8)))
    assert env.observation_space.high.tolist() == [[[1, 3, 5], [7, 9, 11]], [[2, 4, 6], [8, 10, 12]]]
    first(env)


def test_a_single_channel_is_turned_into_memory_of_its_own() -> None:
    image = np.zeros((4, 4, 1), np.uint8)
    assert not np.shares_memory(first(ObsTransposeWrapper(Showing(image_space(image), image))), image)


def test_a_dict_observation_is_turned_under_its_key() -> None:
    inner, env = ChanceEnv(SCENE), ObsTransposeWrapper(ChanceEnv(SCENE), dict_key="image")
    assert env.observation_space == spaces.Dict({"image": spaces.Box(0, 255, (3, 10, 12), np.uint8), "speed": VECTOR})
    for turned, raw in both(env, inner, steps=3):
        assert np.array_equal(turned["image"][2], raw["image"][:, :, 2])
        assert np.array_equal(turned["speed"], raw["speed"])


@pytest.mark.parametrize("space", [GREY, VECTOR, spaces.Box(0, 1, (4, 3, 2, 2)), spaces.Discrete(2), SCENE], ids=str)
def test_obs_transpose_refuses_what_has_not_three_axes(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match=r"ObsTransposeWrapper: expected .*, got (Box|Discrete|Dict)\("):
        ObsTransposeWrapper(ChanceEnv(space))


# ---- RamWrapper ---------------------------------------------------------------------------------


def test_a_memory_becomes_a_column_of_floats() -> None:
    ram = np.arange(128, dtype=np.uint8)
    env = RamWrapper(Showing(image_space(ram), ram, ram + 100))
    assert env.observation_space == spaces.Box(0, 255, (128, 1, 1), np.float32)
    column = first(env)
    assert (column.shape, column.dtype) == ((128, 1, 1), np.float32)
    assert column[:3, 0, 0].tolist() == [0, 1, 2]
    assert env.step(0)[0][:3, 0, 0].tolist() == [100, 101, 102]


def test_the_column_is_gymnasiums_reshaped_observation() -> None:
    for space in (RAM, VECTOR):
        theirs = ReshapeObservation(ChanceEnv(space), (*space.shape, 1, 1))
        for one, other in both(RamWrapper(ChanceEnv(space)), theirs, steps=4):
            assert np.array_equal(one, other)


@pytest.mark.parametrize("space", [GREY, spaces.Box(0, 1, ()), spaces.Discrete(128), spaces.MultiBinary(128), SCENE])
def test_ram_wrapper_refuses_what_is_no_row_of_numbers(space: spaces.Space[Any]) -> None:
    with pytest.raises(SpaceError, match=r"RamWrapper: expected .*, got (Box|Discrete|MultiBinary|Dict)\("):
        RamWrapper(ChanceEnv(space))


# ---- together -----------------------------------------------------------------------------------


@pytest.mark.parametrize("space", [RGB, FLOATS, DOUBLES], ids=str)
def test_the_usual_chain_gives_a_stack_of_scaled_frames(space: spaces.Box) -> None:
    env = FrameStack(ScaledFloatFrame(WarpFrame(ChanceEnv(space), 6)), 3)
    assert env.observation_space == spaces.Box(0, 1, (3, 6, 6), np.float32)
    stack = first(env)
    assert np.array_equal(stack[0], stack[2])
    later = env.step(2)[0]
    assert np.array_equal(later[0], stack[0])
    assert not np.array_equal(later[2], stack[0])


def test_a_colour_image_is_turned_scaled_and_stacked() -> None:
    env = FrameStack(ScaledFloatFrame(ObsTransposeWrapper(ChanceEnv(RGB))), 2)
    assert env.observation_space == spaces.Box(0, 1, (2, 3, 10, 12), np.float32)
    first(env)
