"""Wrappers that scale observations and rewards by a mean and a variance, estimated or known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError, EnvError, InputError, ObservationError
from stepmill.values.arguments import real_number, true_or_false
from stepmill.values.fitting import Misfit, fit
from stepmill.values.trees import map_tree, map_trees
from stepmill.wrappers.base import (
    RecordedObservationWrapper,
    RecordedWrapper,
    Shapes,
    checked_observation,
    checked_reward,
    refuse,
)
from stepmill.wrappers.running_mean_std import RunningMeanStd

# A RunningMeanStd; for a Dict observation a dict of these.
Statistics = Any

_LARGEST = float(np.finfo(np.float32).max)


class ObsNormEnv(RecordedObservationWrapper):
    """``(x - mean) / sqrt(variance + epsilon)`` for each feature, clipped to ``[-clip, clip]``, as float32.

    Mean and variance are those of all observations since the wrapper was made, including the current one, over all
    episodes: a reset keeps them. Before the first observation they are 0 and 1.

    Takes Box observations of any float or integer type, and Dict observations of these, also nested: each leaf has its
    own statistics. Tuples are an error, and so are Discrete and bool, whose values are not quantities.

    Args:
        env: The env to wrap.
        clip: The largest absolute value of the result; None for no bound.
        epsilon: Added to the variance, so that a constant feature causes no division by 0.
        training: False: the statistics are used but not updated, as for evaluation. Can be set at any time.
    """

    _state_names = ("_statistics",)

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        clip: float | None = 10.0,
        epsilon: float = 1e-8,
        training: bool = True,
    ) -> None:
        super().__init__(env, clip=clip, epsilon=epsilon, training=training)
        self.clip = None if clip is None else real_number("ObsNormEnv: clip", clip, 0, _LARGEST, above=True)
        self.epsilon = real_number("ObsNormEnv: epsilon", epsilon, 0, above=True)
        self.training = true_or_false("ObsNormEnv: training", training)
        self._statistics = _new_statistics(env.observation_space)
        self.observation_space = _normalised(env.observation_space, np.inf if self.clip is None else self.clip)

    @property
    def statistics(self) -> Statistics:
        """The wrapper's own ``RunningMeanStd`` of the observations, for a Dict a dict of them. Not a copy."""
        return self._statistics

    def state_dict(self) -> dict[str, Any]:
        """The statistics, to be saved: the state of each ``RunningMeanStd``, nested like the observation."""
        states: dict[str, Any] = map_tree(RunningMeanStd.state_dict, self._statistics)
        return states

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from saved statistics; an invalid state is an error and changes nothing."""
        _load(_new_statistics(self.env.observation_space), state)  # fails, if at all, before anything is changed
        _load(self._statistics, state)

    def observation(self, observation: Any) -> Any:
        """The observation, normalised; during training it updates the statistics first."""
        given = checked_observation("ObsNormEnv", self.env.observation_space, observation)
        return map_trees(self._normalise, self._statistics, given)

    def _normalise(self, statistics: RunningMeanStd, observation: Any) -> np.ndarray:
        values = np.asarray(observation, np.float64)
        if self.training:
            try:
                statistics.update(values)
            except InputError as error:
                reason = str(error).removeprefix("RunningMeanStd: ")
                raise ObservationError(f"ObsNormEnv: {reason}, as observation") from None
        scaled = (values - statistics.mean) / np.sqrt(statistics.var + self.epsilon)
        bound = _LARGEST if self.clip is None else self.clip
        return np.asarray(np.clip(scaled, -bound, bound), np.float32)

    @staticmethod
    def new_shape(
        obs_shape: Any,
        act_shape: Any,
        rew_shape: Any,
        clip: float | None = 10.0,
        epsilon: float = 1e-8,
        training: bool = True,
    ) -> Shapes:
        """All shapes stay the same."""
        return obs_shape, act_shape, rew_shape


def _new_statistics(space: spaces.Space[Any], where: str = "") -> Statistics:
    if isinstance(space, spaces.Dict) and len(space.spaces):
        return {key: _new_statistics(child, f"{where}[{key!r}]") for key, child in space.spaces.items()}
    if isinstance(space, spaces.Box) and space.dtype.kind in "iuf":
        return RunningMeanStd(space.shape)
    refuse("ObsNormEnv", f"a Box of numbers{' at ' * bool(where)}{where}, or a Dict of these, as observation", space)


def _normalised(space: spaces.Space[Any], bound: float) -> spaces.Space[Any]:
    if isinstance(space, spaces.Dict):
        return spaces.Dict([(key, _normalised(child, bound)) for key, child in space.spaces.items()])
    return spaces.Box(-bound, bound, space.shape, np.float32)


def _load(statistics: Statistics, state: Any) -> None:
    try:
        fit(RunningMeanStd.load_state_dict, statistics, state)
    except Misfit as misfit:
        raise ConfigError(f"ObsNormEnv: {misfit.message('state')}") from None


class RewardNormEnv(RecordedWrapper):
    """``reward / sqrt(variance of the discounted returns + epsilon)``, clipped to ``[-clip, clip]``.

    The discounted return of a step is ``return = gamma * return + reward``, starting from 0 at every reset, however the
    last episode ended. The variance is that of these numbers, one per step, including the current one, over all
    episodes: a reset keeps it. The mean is not subtracted: that would change the task. Fewer than two returns have no
    variance, so the first reward is only clipped.

    (Gymnasium's ``NormalizeReward`` carries the return over truncations and into the episode after a termination, and
    starts its variance with 1e-4 of a made-up observation.)

    The reward must be one number; the observation may be anything, also Dicts.

    Args:
        env: The env to wrap.
        gamma: The discount, from 0 to 1.
        epsilon: Added to the variance, so that constant rewards cause no division by 0.
        clip: The largest absolute value of the result; None for no bound.
        training: False: the variance is used but not updated, as for evaluation. Can be set at any time.
    """

    _state_names = ("_statistics", "_return")

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        clip: float | None = 10.0,
        training: bool = True,
    ) -> None:
        super().__init__(env, gamma=gamma, epsilon=epsilon, clip=clip, training=training)
        self.gamma = real_number("RewardNormEnv: gamma", gamma, 0, 1)
        self.epsilon = real_number("RewardNormEnv: epsilon", epsilon, 0, above=True)
        self.clip = None if clip is None else real_number("RewardNormEnv: clip", clip, 0, above=True)
        self.training = true_or_false("RewardNormEnv: training", training)
        self._statistics = RunningMeanStd()
        self._return = 0.0

    @property
    def statistics(self) -> RunningMeanStd:
        """The wrapper's own statistics of the discounted returns. Not a copy."""
        return self._statistics

    def state_dict(self) -> dict[str, Any]:
        """The statistics, to be saved, without the return of the current episode."""
        return self._statistics.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from saved statistics; an invalid state is an error and changes nothing."""
        self._statistics.load_state_dict(state)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, with the return at 0."""
        self._return = 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step, with its reward normalised."""
        observation, raw, terminated, truncated, info = super().step(action)
        reward = checked_reward("RewardNormEnv", raw)
        if not math.isfinite(reward):
            raise EnvError(f"RewardNormEnv: expected a finite reward, got {reward}")
        discounted = self.gamma * self._return + reward
        if self.training:
            self._statistics.update(discounted)
        self._return = discounted
        return observation, self._normalise(reward), terminated, truncated, info

    def _normalise(self, reward: float) -> float:
        if self._statistics.count > 1:
            reward /= float(np.sqrt(self._statistics.var + self.epsilon))
        return reward if self.clip is None else min(max(reward, -self.clip), self.clip)

    @staticmethod
    def new_shape(
        obs_shape: Any,
        act_shape: Any,
        rew_shape: Any,
        gamma: float = 0.99,
        epsilon: float = 1e-8,
        clip: float | None = 10.0,
        training: bool = True,
    ) -> Shapes:
        """All shapes stay the same."""
        return obs_shape, act_shape, rew_shape


class StaticObsNorm(RecordedObservationWrapper):
    """``(x - mean) / std``, as float32; the bounds of the space are scaled too.

    Takes Box observations of any float or integer type, but no Dicts.

    Args:
        env: The env to wrap.
        mean: An array of the observation's shape, or one number for all features.
        std: Like ``mean``, and greater than 0 everywhere.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], mean: Any, std: Any) -> None:
        super().__init__(env, mean=mean, std=std)
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
