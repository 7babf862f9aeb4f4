"""``ObsTransposeWrapper``: channel-first images."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.wrappers.base import Shapes, refuse
from stepmill.wrappers.image_wrapper import ImageWrapper, shape_under

__all__ = ["ObsTransposeWrapper"]


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
