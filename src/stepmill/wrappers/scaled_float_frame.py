"""``ScaledFloatFrame``: images from 0 to 1."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.wrappers.base import Shapes, refuse
from stepmill.wrappers.image_wrapper import ImageWrapper, shape_under

__all__ = ["ScaledFloatFrame"]


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
