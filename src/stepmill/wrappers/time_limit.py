"""``TimeLimit``: cuts episodes off after a number of steps."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import Shapes, ShapeTeller

__all__ = ["TimeLimit"]


# Without its type parameters: RL Zoo puts a class that has none in the place of Gymnasium's.
class TimeLimit(ShapeTeller, gymnasium.wrappers.TimeLimit):
    """Truncates an episode at its ``max_episode_steps``-th step.

    If the env ends by itself on that very step, it is both terminated and truncated. The info of that step has
    ``TimeLimit.truncated``, which a ``BaseEnv`` needs because it has one flag for both: True if only the limit ended
    the episode, False if the env did too. The rest of the env's info is kept.

    Observations may be anything, also Dicts. If the outermost wrapper of the env is a ``TimeLimit`` of Gymnasium with
    the same limit, it is removed: this one replaces it, and ``gymnasium.make(env.spec)``, which adds one, makes the
    same env.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], max_episode_steps: int) -> None:
        limit = whole_number("TimeLimit: max_episode_steps", max_episode_steps, 1)
        if type(env) is gymnasium.wrappers.TimeLimit and env._max_episode_steps == limit:
            env = env.env
        super().__init__(env, limit)
        # Gymnasium starts with None, and a step before the first reset would fail.
        self._elapsed_steps: Any = 0

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # a property in every wrapper of Gymnasium's
        """How to make this env again: with this wrapper, and without Gymnasium's own in addition.

        Gymnasium's limit is inside all wrappers of a spec. If this one is innermost too, the spec has the lower of both
        limits; if it is outside others, which may repeat actions, it is only among the spec's wrappers.
        """
        spec: EnvSpec | None = gymnasium.Wrapper.spec.__get__(self)
        if spec is not None and len(spec.additional_wrappers) == 1:
            inner = spec.max_episode_steps
            spec.max_episode_steps = self._max_episode_steps if inner is None else min(inner, self._max_episode_steps)
        return spec

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the last one is truncated."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._elapsed_steps >= self._max_episode_steps:
            truncated, info = True, {**info, "TimeLimit.truncated": not terminated}
        return observation, reward, terminated, truncated, info

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, max_episode_steps: int | None = None) -> Shapes:
        """All shapes stay the same."""
        if max_episode_steps is not None:
            whole_number("TimeLimit: max_episode_steps", max_episode_steps, 1)
        return obs_shape, act_shape, rew_shape
