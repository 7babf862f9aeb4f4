"""``StaticObsNorm``: observations scaled by a known mean and standard deviation."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.errors import ConfigError
from stepmill.wrappers.base import Shapes, ShapeTeller, refuse
from stepmill.wrappers.checks import checked_observation

__all__ = ["StaticObsNorm"]


class StaticObsNorm(ShapeTeller, gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """``(x - mean) / std``, as float32; the bounds of the space are scaled too.

    Takes Box observations of any float or integer type, but no Dicts.

    Args:
        env: The env to wrap.
        mean: An array of the observation's shape, or one number for all features.
        std: Like ``mean``, and greater than 0 everywhere.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], mean: Any, std: Any) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self, mean=mean, std=std)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or space.dtype.kind not in "iuf":
            refuse("StaticObsNorm", "a Box of numbers as observation", space)
        self._mean = _scale("mean", mean, space.shape)
        self._std = _scale("std", std, space.shape)
        if not (self._std > 0).all():
            raise ConfigError(f"StaticObsNorm: expected std > 0 for every feature, got {std!r}")
        self.observation_space = spaces.Box(self._scaled(space.low), self._scaled(space.high), dtype=np.float32)

    def observation(self, observation: Any) -> np.ndarray:
        """The observation, scaled."""
        return self._scaled(checked_observation("StaticObsNorm", self.env.observation_space, observation))

    def _scaled(self, values: np.ndarray) -> np.ndarray:
        scaled = (values.astype(np.float64) - self._mean) / self._std
        with np.errstate(over="ignore"):  # beyond float32 is infinite, as bounds often are
            return np.asarray(scaled, np.float32)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, mean: Any = None, std: Any = None) -> Shapes:
        """All shapes stay the same."""
        return obs_shape, act_shape, rew_shape


def _scale(name: str, value: Any, shape: tuple[int, ...]) -> np.ndarray:
    try:
        array = np.array(value, np.float64)  # a copy: the caller may change theirs
    except (TypeError, ValueError):
        raise ConfigError(f"StaticObsNorm: expected numbers as {name}, got {value!r}") from None
    if not np.isfinite(array).all():
        raise ConfigError(f"StaticObsNorm: expected finite numbers as {name}, got {value!r}")
    if array.shape not in ((), shape):
        refuse("StaticObsNorm", f"one number or an array of shape {shape} as {name}", f"shape {array.shape}")
    return array
