"""``ObsNormEnv``: observations with mean 0 and variance 1, estimated from all observations so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.errors import ConfigError, InputError, ObservationError
from stepmill.values.arguments import real_number, true_or_false
from stepmill.values.fitting import Misfit, fit
from stepmill.values.trees import map_tree, map_trees
from stepmill.wrappers.base import Shapes, ShapeTeller, refuse
from stepmill.wrappers.checks import checked_observation
from stepmill.wrappers.running_mean_std import RunningMeanStd

__all__ = ["ObsNormEnv"]

# A RunningMeanStd; for a Dict observation a dict of these.
Statistics = Any

_LARGEST = float(np.finfo(np.float32).max)


class ObsNormEnv(ShapeTeller, gymnasium.ObservationWrapper[Any, Any, Any], RecordConstructorArgs):
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

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        clip: float | None = 10.0,
        epsilon: float = 1e-8,
        training: bool = True,
    ) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self, clip=clip, epsilon=epsilon, training=training)
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
