"""``EpisodicLifeEnv``: one episode per life."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from stepmill.wrappers.action_meanings import NOOP, require_noop
from stepmill.wrappers.base import ShapeTeller, refuse

__all__ = ["EpisodicLifeEnv"]


class EpisodicLifeEnv(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A lost life ends the episode (``terminated``), and the next one continues the game.

    Takes any observation, also a Dict, and Discrete actions; if the env says what they mean, 0 must be NOOP. The env
    says how many lives are left in ``info["lives"]`` or through ``ale.lives()``.

    - The game itself is reset only after its real end. Before that, ``reset()`` takes one no-op; if the game ends on
      it, it is reset after all.
    - ``reset`` with a seed or options always resets the game: they cannot take effect in the middle of a game.
    - Every lost life counts, also the last one: some games go on with 0 lives left.
    - ``lives`` and ``was_real_done`` (the game is over, or has not started) show the state of the game.
    - Put a time limit inside this wrapper: outside, it would cut episodes, and the game would never be reset.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        require_noop("EpisodicLifeEnv", env)
        self.lives = 0
        self.was_real_done = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode: with the next life, or after the real end with a new game."""
        if self.was_real_done or seed is not None or options:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                obs, info = self.env.reset()
        self.was_real_done = False
        self.lives = self._lives_left(info)
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes a step; also terminated if a life was lost."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.was_real_done = bool(terminated or truncated)
        lives_before, self.lives = self.lives, self._lives_left(info)
        return obs, reward, bool(terminated or self.lives < lives_before), truncated, info

    def _lives_left(self, info: dict[str, Any]) -> int:
        if "lives" in info:
            return int(info["lives"])
        console = getattr(self.unwrapped, "ale", None)
        if console is None:
            refuse("EpisodicLifeEnv", 'an env with its lives in info["lives"] or ale.lives()', self.unwrapped)
        return int(console.lives())
