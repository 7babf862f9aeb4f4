"""The base of wrappers that change an image: it knows where in the observation the image is."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.wrappers.base import ShapeTeller, refuse
from stepmill.wrappers.checks import checked_observation

__all__ = ["ImageWrapper", "shape_under"]


class ImageWrapper(ShapeTeller, gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
    """Changes one array: the whole observation, or with a ``dict_key`` that part of a Dict observation."""

    def __init__(self, env: gymnasium.Env[Any, Any], dict_key: str | None, **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, dict_key=dict_key, **arguments)
        gymnasium.ObservationWrapper.__init__(self, env)
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
