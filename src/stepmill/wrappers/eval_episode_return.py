"""How well an episode went, told at its end."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from stepmill.wrappers.base import ShapeTeller
from stepmill.wrappers.checks import checked_reward

__all__ = ["EvalEpisodeReturn"]

_NAMES = ("eval_episode_return", "final_eval_reward")


class EvalEpisodeReturn(ShapeTeller, gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Adds the sum of an episode's rewards to the info of its last step, as ``eval_episode_return``, a Python float.

    Older callers find the same float as ``final_eval_reward``. Put it inside of wrappers that change rewards: it sums
    what it is given. An info that has one of the two already keeps it, under both names: an env that knows better how
    well its episode went (a win rate), or another of these wrappers further inside, has the last word.

    The reward is one number; the observation may be anything, Dicts too.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self)
        self._return = 0.0

    @property
    def episode_return(self) -> float:
        """The sum so far, of the episode that is under way or has just ended."""
        return self._return

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode, and its return at 0."""
        self._return = 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the last one tells the return."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._return += checked_reward("EvalEpisodeReturn", reward)
        if terminated or truncated:
            told = next((info[name] for name in _NAMES if name in info), self._return)
            info = {**info, **dict.fromkeys(_NAMES, checked_reward("EvalEpisodeReturn", told))}
        return observation, reward, terminated, truncated, info
