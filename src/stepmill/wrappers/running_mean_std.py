"""Mean and variance of a stream, feature by feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stepmill.errors import ConfigError, InputError, MissingConfigError
from stepmill.values.arguments import whole_number

_STATE = ("count", "mean", "squared_deviations")


class RunningMeanStd:
    """The exact mean and variance of all observations, one of each for every feature.

    A feature is an element of an observation: for observations of shape ``(2,)`` there are two means, for images one
    per pixel and channel. The variance is that of the values (divided by their count, as in ``numpy.var``). There is no
    made-up first value: before the first observation the mean is 0 and the variance 1, after it the mean is that
    observation and the variance 0.

    Sums are kept in float64 as deviations from the mean (Welford, Chan), so a large offset costs no digits. Values that
    are not finite are an error, because no later value could repair the mean. ``mean``, ``var``, ``std`` and
    ``state_dict`` return copies.
    """

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        try:
            self._mean = np.zeros(shape)
        except (TypeError, ValueError):
            raise ConfigError(f"RunningMeanStd: expected the shape of an array, got {shape!r}") from None
        self.shape = self._mean.shape
        self._count = 0
        self._squared_deviations = np.zeros(self.shape)  # the sum of the squared deviations from the mean

    def __repr__(self) -> str:
        return f"RunningMeanStd(shape={self.shape}, count={self._count})"

    # ---- results -----------------------------------------------------------------------------

    @property
    def count(self) -> int:
        """The number of observations."""
        return self._count

    @property
    def mean(self) -> np.ndarray:
        """The mean of every feature, float64."""
        return self._mean.copy()

    @property
    def var(self) -> np.ndarray:
        """The variance of every feature, float64; 1 before the first observation."""
        return np.asarray(self._squared_deviations / self._count) if self._count else np.ones(self.shape)

    @property
    def std(self) -> np.ndarray:
        """The standard deviation of every feature, float64."""
        return np.asarray(np.sqrt(self.var))

    # ---- observations ------------------------------------------------------------------------

    def update(self, x: Any) -> None:
        """Adds one observation."""
        value = _finite(x)
        if value.shape != self.shape:
            raise InputError(f"RunningMeanStd: expected one observation of shape {self.shape}, got {value.shape}")
        self._count += 1
        deviation = value - self._mean
        self._mean += deviation / self._count
        self._squared_deviations += deviation * (value - self._mean)

    def update_batch(self, xs: Any) -> None:
        """Adds observations, one per row."""
        values = _finite(xs)
        if values.ndim == 0 or values.shape[1:] != self.shape:
            expected = ", ".join(["n", *map(str, self.shape)])
            raise InputError(f"RunningMeanStd: expected observations of shape ({expected}), got {values.shape}")
        count = len(values)
        if count == 0:
            return
        mean = values.mean(axis=0)
        mean = mean + (values - mean).mean(axis=0)  # recovers the digits lost to rounding
        self._add(count, mean, np.square(values - mean).sum(axis=0))

    def merge(self, other: RunningMeanStd) -> None:
        """Adds all observations of another one, which stays unchanged.

        For collectors that run in parallel and started empty: observations that both have count twice.
        """
        if not isinstance(other, RunningMeanStd) or other.shape != self.shape:
            raise InputError(f"RunningMeanStd: merge: expected a RunningMeanStd of shape {self.shape}, got {other!r}")
        if other._count:
            self._add(other._count, other._mean, other._squared_deviations)

    def _add(self, count: int, mean: np.ndarray, squared_deviations: np.ndarray) -> None:
        both = self._count + count
        apart = mean - self._mean
        between = np.square(apart) * (self._count * (count / both))
        self._mean += apart * (count / both)
        self._squared_deviations += squared_deviations + between
        self._count = both

    # ---- saving ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The whole state, to be saved."""
        return {
            "count": self._count,
            "mean": self._mean.copy(),
            "squared_deviations": self._squared_deviations.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces the state with a saved one; an invalid state is an error and changes nothing."""
        if not isinstance(state, Mapping):
            raise ConfigError(f"RunningMeanStd: expected a state with {', '.join(_STATE)}, got {state!r}")
        missing = [key for key in _STATE if key not in state]
        if missing:
            raise MissingConfigError(
                f"RunningMeanStd: expected a state with {', '.join(_STATE)}, got one without {', '.join(missing)}"
            )
        count = whole_number("RunningMeanStd: count of the state", state["count"], 0)
        mean, squared_deviations = self._part(state, "mean"), self._part(state, "squared_deviations")
        if (squared_deviations < 0).any():
            raise ConfigError(f"RunningMeanStd: expected squared_deviations >= 0, got {squared_deviations}")
        self._count, self._mean, self._squared_deviations = count, mean, squared_deviations

    def _part(self, state: Mapping[str, Any], key: str) -> np.ndarray:
        try:
            part = _finite(state[key]).copy()
        except InputError as error:
            raise ConfigError(f"{error}, as {key} of the state") from None
        if part.shape != self.shape:
            raise ConfigError(f"RunningMeanStd: expected a state with {key} of shape {self.shape}, got {part.shape}")
        return part


def _finite(values: Any) -> np.ndarray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise InputError(f"RunningMeanStd: expected numbers, got {values!r}") from None
    if not np.isfinite(array).all():
        raise InputError(f"RunningMeanStd: expected finite numbers, got {array[~np.isfinite(array)].flat[0]}")
    return array
