"""``WarpFrame``: small grey images."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError
from stepmill.system.optional import require
from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import Shapes, refuse
from stepmill.wrappers.image_wrapper import ImageWrapper, shape_under

__all__ = ["WarpFrame"]


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
