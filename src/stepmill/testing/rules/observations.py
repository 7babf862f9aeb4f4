"""Rules of observations, as ``reset`` and ``step`` return them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stepmill.testing.finding import Problem
from stepmill.testing.moments import Moment
from stepmill.testing.rule import moment_rule
from stepmill.testing.trees import Leaf, is_array_space, leaves, misfits, outside, show

__all__ = ["obs_bounds", "obs_dtype", "obs_shape", "obs_type"]


@moment_rule("Give arrays, nested as the observation space is: np.asarray(obs, np.float32).")
def obs_type(moment: Moment) -> Iterator[Problem]:
    """Observations are ``np.ndarray``, or dicts and tuples of them, as the observation space says."""
    for misfit in misfits(moment.spaces.observation, moment.obs, "obs"):
        yield Problem(*misfit)


@moment_rule("Cast it, obs.astype(np.float32), and let the observation space say the same.")
def obs_dtype(moment: Moment) -> Iterator[Problem]:
    """Observations are float32 or int64, images may be uint8, and the observation space says so."""
    for path, space, value in _arrays(moment):
        is_image = value.dtype == np.uint8 and value.ndim >= 2
        if not is_image and value.dtype not in (np.float32, np.int64):
            yield Problem(path, "float32 or int64, or uint8 of an image", str(value.dtype))
        elif value.dtype != space.dtype:
            yield Problem(path, f"{np.dtype(space.dtype)}, as its space", str(value.dtype))


@moment_rule("Mend the shape, or the observation space.")
def obs_shape(moment: Moment) -> Iterator[Problem]:
    """Observations have the shape of the observation space."""
    for path, space, value in _arrays(moment):
        if value.shape != space.shape:
            yield Problem(path, f"the shape {space.shape}", str(value.shape))


@moment_rule("Widen the observation space, or clip the observation to it.")
def obs_bounds(moment: Moment) -> Iterator[Problem]:
    """Observations are inside of the observation space."""
    for path, space, value in leaves(moment.spaces.observation, moment.obs, "obs"):
        fits = not is_array_space(space) or (value.shape == space.shape and value.dtype.kind in "fiub")
        beyond = outside(space, value) if fits else None
        if beyond is not None:
            yield Problem(path, f"values of {show(space)}", beyond)


def _arrays(moment: Moment) -> list[Leaf]:
    return [leaf for leaf in leaves(moment.spaces.observation, moment.obs, "obs") if is_array_space(leaf.space)]
