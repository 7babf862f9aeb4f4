"""Wrappers for images: small and grey, from 0 to 1, channels first."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError
from stepmill.system.optional import require
from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import RecordedObservationWrapper, Shapes, checked_observation, refuse


class ImageWrapper(RecordedObservationWrapper):
    """Changes one array: the whole observation, or with a ``dict_key`` that part of a Dict observation."""

    def __init__(self, env: gymnasium.Env[Any, Any], dict_key: str | None, **arguments: Any) -> None:
        super().__init__(env, dict_key=dict_key, **arguments)
        self.dict_key = dict_key
        space = env.observation_space
        if dict_key is None:
            self._read_space: spaces.Space[Any] = self._box(space)
            self.observation_space = self._new_space(self._box(space))
            return
        if not isinstance(space, spaces.Dict) or dict_key not in space.spaces:
            refuse(type(self).__name__, f"a Dict observation space with the key {dict_key!r}", space)
        around = copy.deepcopy(space)  # keeps the order of the keys
        self._read_space = spaces.Dict({dict_key: self._box(space[dict_key])})
        around[dict_key] = self._new_space(self._box(space[dict_key]))
        self.observation_space = around

    def observation(self, observation: Any) -> Any:
        """The observation with the image changed, in its own memory."""
        given = checked_observation(type(self).__name__, self._read_space, observation)
        if self.dict_key is None:
            return self._new_image(given)
        return {**observation, self.dict_key: self._new_image(given[self.dict_key])}

    def _box(self, space: spaces.Space[Any]) -> spaces.Box:
        if not isinstance(space, spaces.Box):
            hint = ", or dict_key=..." if isinstance(space, spaces.Dict) else ""
            refuse(type(self).__name__, f"a Box observation space{hint}", space)
        return space

    @abstractmethod
    def _new_space(self, space: spaces.Box) -> spaces.Box:
        """The space of the changed images; raises an error for a space that it cannot handle."""

    @abstractmethod
    def _new_image(self, image: np.ndarray) -> Any:
        """The changed image. Never a view of the old one, which the env may draw over."""


def shape_under(wrapper: str, obs_shape: Any, dict_key: str | None, change: Callable[[Any], Any]) -> Any:
    """``obs_shape`` with the image's shape changed."""
    if dict_key is None:
        if isinstance(obs_shape, Mapping):
            refuse(wrapper, "the shape of an array, or dict_key=...", obs_shape)
        return change(obs_shape)
    if not isinstance(obs_shape, Mapping) or dict_key not in obs_shape:
        refuse(wrapper, f"the shapes of a Dict observation with the key {dict_key!r}", obs_shape)
    return {**obs_shape, dict_key: change(obs_shape[dict_key])}


class WarpFrame(ImageWrapper):
    """Makes images grey and resizes them: ``(H, W, 3)``, ``(H, W, 1)`` or ``(H, W)`` becomes ``(height, width)``.

    Takes Box observations, and Dict ones with an image under ``dict_key``: that part is changed, the others stay.

    - The result has no channel axis: ``FrameStack`` adds one in front, which gives the usual ``(4, 84, 84)``.
    - Three channels count as red, green, blue, with the weights 0.299, 0.587, 0.114. One channel counts as grey.
    - Every pixel is the average of the area it covers.
    - uint8 stays uint8, floats become float32. The bounds are the widest of the image's, and results are within them.

    Needs OpenCV.

    Args:
        env: The env to wrap.
        size: The height and width: one number for both, or ``(height, width)``.
        dict_key: The key of the image in a Dict observation.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], size: int | tuple[int, int] = 84, dict_key: str | None = None
    ) -> None:
        self.height, self.width = _height_and_width(size)
        _cv2()  # if it is missing, say so here rather than at the first reset
        super().__init__(env, dict_key, size=size)

    @staticmethod
    def new_shape(
        obs_shape: Any,
        act_shape: Any,
        rew_shape: Any,
        size: int | tuple[int, int] = 84,
        dict_key: str | None = None,
    ) -> Shapes:
        """The image becomes ``(height, width)``."""
        warped = shape_under("WarpFrame", obs_shape, dict_key, lambda image: _warped_shape(image, size))
        return warped, act_shape, rew_shape

    def _new_space(self, space: spaces.Box) -> spaces.Box:
        is_float = np.issubdtype(space.dtype, np.floating)
        if not _is_image(space.shape) or not (is_float or space.dtype == np.uint8):
            refuse("WarpFrame", "images of shape (H, W, 3), (H, W, 1) or (H, W), of uint8 or floats", space)
        dtype: Any = np.float32 if is_float else np.uint8
        return spaces.Box(dtype(space.low.min()), dtype(space.high.max()), (self.height, self.width), dtype)

    def _new_image(self, image: np.ndarray) -> Any:
        cv2, space = _cv2(), self._warped_space()
        image = image.astype(space.dtype, copy=False)
        if image.ndim == 3:
            image = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if image.shape[2] == 3 else image[:, :, 0]
        warped = cv2.resize(image, (self.width, self.height), interpolation=cv2.INTER_AREA)
        if space.dtype == np.float32:  # the weights do not add up to 1 exactly
            np.clip(warped, space.low, space.high, out=warped)
        return warped

    def _warped_space(self) -> Any:
        space: Any = self.observation_space
        return space if self.dict_key is None else space[self.dict_key]


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) in (2, 3) and shape[2:] in ((), (1,), (3,)) and min(shape) > 0


def _warped_shape(shape: Any, size: Any) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or not _is_image(tuple(shape)):
        refuse("WarpFrame", "an image's shape (H, W, 3), (H, W, 1) or (H, W)", shape)
    return _height_and_width(size)


def _height_and_width(size: Any) -> tuple[int, int]:
    both = tuple(size) if isinstance(size, tuple | list) else (size, size)
    if len(both) != 2:
        raise ConfigError(f"WarpFrame: size: expected a whole number or (height, width), got {size!r}")
    return whole_number("WarpFrame: size", both[0], 1), whole_number("WarpFrame: size", both[1], 1)


def _cv2() -> ModuleType:
    return require("cv2", "opencv-python-headless", "wrappers", "WarpFrame")


class ScaledFloatFrame(ImageWrapper):
    """Scales observations to [0, 1], as float32, by the bounds of their space: ``(x - low) / (high - low)``.

    Takes Box observations of any shape and number type with finite bounds, and Dict ones with such a Box under
    ``dict_key``: that part is scaled, the others stay unchanged. If low equals high, the result is 0.

    Args:
        env: The env to wrap.
        dict_key: The key of the image in a Dict observation.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], dict_key: str | None = None) -> None:
        super().__init__(env, dict_key)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, dict_key: str | None = None) -> Shapes:
        """All shapes stay the same."""
        return shape_under("ScaledFloatFrame", obs_shape, dict_key, lambda image: image), act_shape, rew_shape

    def _new_space(self, space: spaces.Box) -> spaces.Box:
        # The quotient of two small whole numbers is the same in float32; everything else is computed in float64.
        self._work_dtype: Any = np.float32 if space.dtype == np.uint8 else np.float64
        low: Any = space.low.astype(self._work_dtype)
        high: Any = space.high.astype(self._work_dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # infinite bounds, and a range beyond float64
            width = np.asarray(high - low)
        if not np.isfinite(width).all():
            refuse("ScaledFloatFrame", "an observation space with finite bounds", space)
        self._low = _one_if_all_equal(low)
        self._width = _one_if_all_equal(np.where(width == 0, self._work_dtype(1), width))
        return spaces.Box(0.0, 1.0, space.shape, np.float32)

    def _new_image(self, image: np.ndarray) -> Any:
        scaled = np.subtract(image, self._low, dtype=self._work_dtype)
        return np.asarray(np.divide(scaled, self._width), np.float32)


def _one_if_all_equal(bounds: Any) -> Any:
    """One number if all bounds are equal, as for most images: that is faster."""
    return bounds.flat[0] if bounds.size and (bounds == bounds.flat[0]).all() else bounds


class ObsTransposeWrapper(ImageWrapper):
    """Puts the channels first: ``(H, W, C)`` becomes ``(C, H, W)``.

    Takes Box observations with three axes and any number type, and Dict ones with such a Box under ``dict_key``: that
    part is transposed, the others stay unchanged.

    Args:
        env: The env to wrap.
        dict_key: The key of the image in a Dict observation.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], dict_key: str | None = None) -> None:
        super().__init__(env, dict_key)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, dict_key: str | None = None) -> Shapes:
        """The last axis of the image becomes the first."""
        turned = shape_under("ObsTransposeWrapper", obs_shape, dict_key, _channel_first)
        return turned, act_shape, rew_shape

    def _new_space(self, space: spaces.Box) -> spaces.Box:
        if len(space.shape) != 3:
            refuse("ObsTransposeWrapper", "images of shape (H, W, C)", space)
        return spaces.Box(_turned(space.low), _turned(space.high), dtype=space.dtype.type)

    def _new_image(self, image: np.ndarray) -> Any:
        return _turned(image)


def _turned(image: Any) -> Any:
    return np.array(np.moveaxis(image, -1, 0), order="C")  # a contiguous copy


def _channel_first(shape: Any) -> Any:
    if not isinstance(shape, tuple | list) or len(shape) != 3:
        refuse("ObsTransposeWrapper", "an image's shape (H, W, C)", shape)
    height, width, channels = shape
    return channels, height, width
