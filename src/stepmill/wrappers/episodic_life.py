"""``EpisodicLifeEnv``: one episode a life."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from stepmill.wrappers.action_meanings import NOOP, require_noop
from stepmill.wrappers.base import ShapeTeller, refuse

__all__ = ["EpisodicLifeEnv"]


class EpisodicLifeEnv(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """A lost life ends the episode (``terminated``), and the game goes on in the next one.

    Takes any observation, Dict ones too, and Discrete actions; where the env tells what they mean, 0 has to be NOOP.
    The env says how many lives are left in ``info["lives"]``, or by ``ale.lives()``.

    - The game itself is reset only after its real end. Before that ``reset()`` takes one no-op; should the game end on
      it, it is reset after all.
    - ``reset`` with a seed or options always resets the game: what they ask for cannot be done in the middle of one.
    - Every lost life counts, the one that leaves none too: some games are played on with 0 lives to spare.
    - ``lives`` and ``was_real_done`` (the game is over, or was never begun) tell where the game stands.
    - A time limit belongs inside of this wrapper: outside, it cuts episodes, and the game is never reset.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        gymnasium.Wrapper.__init__(self, env)
        require_noop("EpisodicLifeEnv", env)
        self.lives = 0
        self.was_real_done = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode: with the next life, or, after the real end, with a new game."""
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
        """Takes a step; terminated too when a life was lost in it."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.was_real_done = bool(terminated or truncated)
        lives_before, self.lives = self.lives, self._lives_left(info)
        return obs, reward, bool(terminated or self.lives < lives_before), truncated, info

    def _lives_left(self, info: dict[str, Any]) -> int:
        if "lives" in info:
            return int(info["lives"])
        console = getattr(self.unwrapped, "ale", None)
        if console is None:
            refuse("EpisodicLifeEnv", 'an env that says its lives in info["lives"] or by ale.lives()', self.unwrapped)
        return int(console.lives())
