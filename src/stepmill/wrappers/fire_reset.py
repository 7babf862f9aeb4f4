"""``FireResetEnv``: for games that wait for the fire button."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from stepmill.wrappers.action_meanings import FIRE, action_meanings, fires
from stepmill.wrappers.base import ShapeTeller, refuse

__all__ = ["FireResetEnv"]


class FireResetEnv(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """After each reset takes action 1, which must mean FIRE: some games do not start without it.

    Takes any observation, also a Dict. If the episode ends on the FIRE, a new one starts, without a FIRE. The info is
    that of the reset, updated with that of the FIRE.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        if not isinstance(env.action_space, spaces.Discrete) or not env.action_space.contains(FIRE):
            refuse("FireResetEnv", "a Discrete action space that holds action 1", env.action_space)
        if not fires(env):
            meanings = action_meanings(env)
            told = "one without get_action_meanings()" if meanings is None else f"one with the actions {meanings}"
            refuse("FireResetEnv", "an env whose action 1 means FIRE", told)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and fires once."""
        _, at_reset = self.env.reset(seed=seed, options=options)
        info = dict(at_reset)  # the env may write its next info into the same dict
        obs, _, terminated, truncated, said = self.env.step(FIRE)
        if terminated or truncated:
            return self.env.reset(options=options)
        return obs, {**info, **said}
