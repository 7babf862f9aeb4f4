"""What our wrappers add to Gymnasium's: they tell how they change shapes, and raise an error for other spaces."""

from __future__ import annotations

from typing import Any, NoReturn

from stepmill.errors import SpaceError

__all__ = ["ShapeTeller", "Shapes", "refuse"]

# The shapes of observation, action and reward, as in ``BaseEnv.info()``: ``Discrete(n)`` is ``(n,)``, a Dict space is a
# dict of shapes, a Tuple space is a tuple of shapes.
Shapes = tuple[Any, Any, Any]


class ShapeTeller:
    """A wrapper that tells, without an env, which shapes come out of it."""

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any) -> Shapes:
        """The shapes outside the wrapper, from those inside. Takes the wrapper's own arguments too."""
        return obs_shape, act_shape, rew_shape


def refuse(wrapper: str, expected: str, got: Any) -> NoReturn:
    """Raises the error of a wrapper that cannot handle what it was put on."""
    raise SpaceError(f"{wrapper}: expected {expected}, got {got}")
