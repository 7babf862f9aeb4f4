"""Wrappers that change actions: each one taken several times, and hybrid ones as a Dict."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import ActionError
from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import RecordedWrapper, Shapes, checked_observation, checked_reward, refuse


class ActionRepeat(RecordedWrapper):
    """Takes every action ``action_repeat`` times, or until the episode ends, and sums the rewards.

    Observation, flags and info are those of the last repetition; ``info["abnormal"]`` is true if it was in any of them.
    The reward must be one number; observations may be anything, also Dicts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], action_repeat: int) -> None:
        super().__init__(env, action_repeat=action_repeat)
        self.action_repeat = whole_number("ActionRepeat: action_repeat", action_repeat, 1)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """All repetitions, as one step."""
        total, abnormal = 0.0, False
        for _ in range(self.action_repeat):
            observation, reward, terminated, truncated, info = super().step(action)
            total += checked_reward("ActionRepeat", reward)
            abnormal = abnormal or bool(info.get("abnormal", False))
            if terminated or truncated:
                break
        if abnormal:
            info = {**info, "abnormal": True}
        return observation, total, terminated, truncated, info

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, action_repeat: int | None = None) -> Shapes:
        """All shapes stay the same."""
        if action_repeat is not None:
            whole_number("ActionRepeat: action_repeat", action_repeat, 1)
        return obs_shape, act_shape, rew_shape


class MaxAndSkipEnv(RecordedWrapper):
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
        super().__init__(env, skip=skip)
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


_TAKEN = "a Tuple of one Discrete and then Boxes of floats as action"


class GymHybridDictAction(RecordedWrapper, gymnasium.ActionWrapper[Any, Any, Any]):
    """Shows a ``Tuple(Discrete, Box, ...)`` action space as ``Dict(action_type=Discrete, action_args=Box)``.

    ``action_args`` is one vector: the parameters of all Boxes, one after another, each row by row. So gym-hybrid's
    ``Tuple(Discrete(3), Box(0, 1, (1,)), Box(-1, 1, (1,)))`` takes ``{"action_type": 1, "action_args": [0.0, 0.5]}``,
    and the env gets ``(1, [0.0], [0.5])``. Parameters outside their bounds are passed on, as in Gymnasium.

    Observations may be anything, also Dicts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._type, self._boxes = _parts(env.action_space)
        low = np.concatenate([box.low.ravel() for box in self._boxes])
        high = np.concatenate([box.high.ravel() for box in self._boxes])
        self._args = spaces.Box(low, high, dtype=low.dtype.type)
        # Copies: sampling from or seeding these does not affect the env's own space.
        self.action_space = spaces.Dict({"action_type": copy.deepcopy(self._type), "action_args": self._args})

    def action(self, action: Any) -> tuple[Any, ...]:
        """The action as the env takes it."""
        if not isinstance(action, Mapping) or set(action) != {"action_type", "action_args"}:
            raise ActionError(
                f"GymHybridDictAction: expected a dict of action_type and action_args as action, got {action!r}"
            )
        return (self._choice(action["action_type"]), *self._parameters(action["action_args"]))

    def _choice(self, value: Any) -> Any:
        array = np.asarray(value)
        if array.size == 1 and array.dtype.kind in "iuf" and float(array.item()).is_integer():
            choice = int(array.item())
            if self._type.contains(choice):
                return np.dtype(self._type.dtype).type(choice)
        raise ActionError(f"GymHybridDictAction: expected an action_type of {self._type}, got {value!r}")

    def _parameters(self, values: Any) -> list[np.ndarray]:
        try:
            array = np.asarray(values, self._args.dtype)
        except (TypeError, ValueError):
            array = None
        if array is None or array.shape != self._args.shape:
            raise ActionError(
                f"GymHybridDictAction: expected action_args of {self._args.shape[0]} numbers, got {values!r}"
            )
        ends = np.cumsum([math.prod(box.shape) for box in self._boxes])
        parts = np.split(array, ends[:-1])
        return [part.reshape(box.shape).astype(box.dtype) for part, box in zip(parts, self._boxes, strict=True)]

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any) -> Shapes:
        """The action becomes a dict: ``((3,), (1,), (1,))`` is ``{"action_type": (3,), "action_args": (2,)}`` then."""
        if (
            not isinstance(act_shape, tuple)
            or len(act_shape) < 2
            or not all(isinstance(one, tuple) for one in act_shape)
        ):
            refuse("GymHybridDictAction", "the shapes of a Discrete and one or more Boxes", act_shape)
        kind, *boxes = act_shape
        return obs_shape, {"action_type": kind, "action_args": (sum(map(math.prod, boxes)),)}, rew_shape


def _parts(space: spaces.Space[Any]) -> tuple[spaces.Discrete, list[spaces.Box]]:
    if isinstance(space, spaces.Tuple) and len(space.spaces) > 1:
        kind, *boxes = space.spaces
        if isinstance(kind, spaces.Discrete):
            floats = [box for box in boxes if isinstance(box, spaces.Box) and box.dtype.kind == "f"]
            if len(floats) == len(boxes):
                return kind, floats
    refuse("GymHybridDictAction", _TAKEN, space)
