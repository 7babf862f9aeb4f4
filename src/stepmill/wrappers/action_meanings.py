"""What the actions of an env mean, if it has ``get_action_meanings()``, as Atari games do."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from stepmill.wrappers.base import refuse

__all__ = ["FIRE", "NOOP", "action_meanings", "fires", "require_noop"]

NOOP = 0
FIRE = 1


def action_meanings(env: gymnasium.Env[Any, Any]) -> list[str] | None:
    """The name of each action; None if the env does not say."""
    if not env.has_wrapper_attr("get_action_meanings"):
        return None
    return list(env.get_wrapper_attr("get_action_meanings")())


def require_noop(wrapper: str, env: gymnasium.Env[Any, Any]) -> None:
    """Raises an error if the env has no action 0, or if action 0 is known to do something."""
    if not isinstance(env.action_space, spaces.Discrete) or not env.action_space.contains(NOOP):
        refuse(wrapper, "a Discrete action space that holds action 0, the no-op", env.action_space)
    meanings = action_meanings(env)
    if meanings is not None and meanings[:1] != ["NOOP"]:
        refuse(wrapper, "an env whose action 0 means NOOP", f"one with the actions {meanings}")


def fires(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether action 1 means FIRE."""
    meanings = action_meanings(env)
    return meanings is not None and meanings[FIRE : FIRE + 1] == ["FIRE"]
