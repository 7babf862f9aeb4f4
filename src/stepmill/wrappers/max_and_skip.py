"""``MaxAndSkipEnv``: one action for several frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import Shapes, ShapeTeller, refuse
from stepmill.wrappers.checks import checked_observation, checked_reward

__all__ = ["MaxAndSkipEnv"]


class MaxAndSkipEnv(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Takes each action ``skip`` times; the observation is the maximum of the last two frames, pixel by pixel.

    Takes Box observations, images and vectors. Rewards are added up.

    - If the episode ends early, so does the step. The maximum is over the last two frames of this step; if it has only
      one, as with ``skip=1``, it is that one.
    - The info is that of the last frame; ``abnormal`` is true if it was in any of them.

    Gymnasium's ``MaxAndSkipObservation`` does the same unless an episode ends early; then it shows older frames.

    Args:
        env: The env to wrap.
        skip: How many times each action is taken, at least 1.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], skip: int = 4) -> None:
        self.skip = whole_number("MaxAndSkipEnv: skip", skip, 1)
        RecordConstructorArgs.__init__(self, skip=skip)
        gymnasium.Wrapper.__init__(self, env)
        if not isinstance(env.observation_space, spaces.Box):
            refuse("MaxAndSkipEnv", "a Box observation space", env.observation_space)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, skip: int = 4) -> Shapes:
        """All shapes stay the same."""
        whole_number("MaxAndSkipEnv: skip", skip, 1)
        if isinstance(obs_shape, Mapping):
            refuse("MaxAndSkipEnv", "the shape of an array", obs_shape)
        return obs_shape, act_shape, rew_shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode: only its first frame."""
        frame, info = self.env.reset(seed=seed, options=options)
        return np.array(self._given(frame)), info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes the action ``skip`` times, or until the episode ends."""
        frame: Any = None
        total, abnormal = 0.0, False
        for _ in range(self.skip):
            # A copy: the env may draw its next frame into the same memory.
            previous = None if frame is None else np.array(frame)
            seen, reward, terminated, truncated, info = self.env.step(action)
            frame = self._given(seen)
            total += checked_reward("MaxAndSkipEnv", reward)
            abnormal = abnormal or bool(info.get("abnormal", False))
            if terminated or truncated:
                break
        if abnormal:
            info = {**info, "abnormal": True}
        largest = np.array(frame) if previous is None else np.maximum(previous, frame, out=previous)
        return largest, total, terminated, truncated, info

    def _given(self, frame: Any) -> np.ndarray:
        array: np.ndarray = checked_observation("MaxAndSkipEnv", self.env.observation_space, frame)
        return array
