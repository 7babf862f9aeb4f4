"""``EvalEpisodeReturn``: reports at the end of an episode how well it went."""

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

    Older callers find the same float as ``final_eval_reward``. Put it inside wrappers that change rewards: it sums what
    it gets. If the info already has one of the two, that value stays, under both names: an env that measures its
    episodes differently (a win rate), or an inner wrapper of this kind, takes precedence.

    The reward must be one number; the observation may be anything, also Dicts.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        RecordConstructorArgs.__init__(self)
        self._return = 0.0

    @property
    def episode_return(self) -> float:
        """The sum so far, of the current episode or the one that has just ended."""
        return self._return

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode, with its return at 0."""
        self._return = 0.0
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the info of the last one has the return."""
        observation, reward, terminated, truncated, info = super().step(action)
        self._return += checked_reward("EvalEpisodeReturn", reward)
        if terminated or truncated:
            told = next((info[name] for name in _NAMES if name in info), self._return)
            info = {**info, **dict.fromkeys(_NAMES, checked_reward("EvalEpisodeReturn", told))}
        return observation, reward, terminated, truncated, info
