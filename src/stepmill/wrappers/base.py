"""What our wrappers have in common: they say how they change shapes, and check what they are put on and given."""

from __future__ import annotations

from typing import Any, NoReturn

import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.errors import EnvError, ObservationError, SpaceError
from stepmill.registry.env_state import HasLayerState
from stepmill.values.fitting import Misfit, as_numbers, fit, member_of
from stepmill.values.trees import tree_of

# The shapes of observation, action and reward, as in ``BaseEnv.info()``: ``Discrete(n)`` is ``(n,)``, a Dict space is a
# dict of shapes, a Tuple space is a tuple of shapes.
Shapes = tuple[Any, Any, Any]


class ShapeTeller:
    """A wrapper that tells, without an env, which shapes come out of it."""

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any) -> Shapes:
        """The shapes outside the wrapper, from those inside. Takes the wrapper's own arguments too."""
        return obs_shape, act_shape, rew_shape


class RecordedWrapper(ShapeTeller, HasLayerState, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A wrapper whose arguments are a part of the env's spec, so that ``gymnasium.make(env.spec)`` makes the same."""

    def __init__(self, env: gymnasium.Env[Any, Any], **arguments: Any) -> None:
        RecordConstructorArgs.__init__(self, **arguments)
        gymnasium.Wrapper.__init__(self, env)


class RecordedObservationWrapper(RecordedWrapper, gymnasium.ObservationWrapper[Any, Any, Any]):
    """A wrapper that only changes observations, and whose arguments are a part of the env's spec."""


def refuse(wrapper: str, expected: str, got: Any) -> NoReturn:
    """Raises the error of a wrapper that cannot handle what it was put on."""
    raise SpaceError(f"{wrapper}: expected {expected}, got {got}")


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
