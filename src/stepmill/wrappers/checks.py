"""Checks of what an env gives to a wrapper: from anything outside its space a wrapper would make nonsense."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from stepmill.errors import EnvError, ObservationError
from stepmill.values.fitting import Misfit, as_numbers, fit, member_of
from stepmill.values.trees import tree_of

__all__ = ["checked_observation", "checked_reward"]


def checked_observation(wrapper: str, space: spaces.Space[Any], value: Any) -> Any:
    """An observation as arrays of the space's shapes and types. Arrays that have these already are not copied.

    Args:
        wrapper: The name of the wrapper, for the error.
        space: A Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these.
        value: What the env gave. Dicts may have more keys than the space; they are dropped, as in pools.
    """
    try:
        return fit(member_of, tree_of(space), value, spare=True)
    except Misfit as misfit:
        raise ObservationError(f"{wrapper}: {misfit.message('observation')}") from None


def checked_reward(wrapper: str, reward: Any) -> float:
    """A reward as a float. An array of one element is accepted; the rewards of several agents are not one number."""
    if isinstance(reward, float | int):
        return float(reward)
    array = as_numbers(reward)
    if array is None or array.size != 1:
        raise EnvError(f"{wrapper}: expected one number as reward, got {reward!r}")
    return float(array.item())
