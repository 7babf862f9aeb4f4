"""Episodes cut off after some steps."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from stepmill.arguments import whole_number
from stepmill.wrappers.base import Shapes, ShapeTeller

__all__ = ["TimeLimit"]


class TimeLimit(ShapeTeller, gymnasium.wrappers.TimeLimit[Any, Any]):
    """Truncates an episode at its ``max_episode_steps``-th step.

    An env that ends by itself on that very step stays terminated, beside the truncation. The info of that step has
    ``TimeLimit.truncated``, the word of a ``BaseEnv``, which has one flag for both ends: True if the limit alone ended
    the episode, False if the env did too. Whatever else the env's info says stays.

    Observations may be anything, Dicts too. A limit of Gymnasium's that is the same, and the outermost wrapper of the
    env, is taken off: this one does what it did, and ``gymnasium.make(env.spec)``, which puts one there, makes the env
    that ``env`` is.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], max_episode_steps: int) -> None:
        limit = whole_number("TimeLimit: max_episode_steps", max_episode_steps, 1)
        if type(env) is gymnasium.wrappers.TimeLimit and env._max_episode_steps == limit:
            env = env.env
        super().__init__(env, limit)
        # Gymnasium begins with None, on which a step before the first reset would fail.
        self._elapsed_steps: Any = 0

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # a property in every wrapper of Gymnasium's
        """How to make this env again: with this wrapper, not with Gymnasium's beside it.

        Gymnasium's limit stands below all wrappers of a spec. Where this one stands there too, the spec has the lower
        limit of both; above others, which may repeat actions, it is among the spec's wrappers alone.
        """
        spec: EnvSpec | None = gymnasium.Wrapper.spec.__get__(self)
        if spec is not None and len(spec.additional_wrappers) == 1:
            inner = spec.max_episode_steps
            spec.max_episode_steps = self._max_episode_steps if inner is None else min(inner, self._max_episode_steps)
        return spec

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step, the last one truncated."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._elapsed_steps >= self._max_episode_steps:
            info = {**info, "TimeLimit.truncated": not terminated}
        return observation, reward, terminated, truncated, info

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, max_episode_steps: int | None = None) -> Shapes:
        """All as they were."""
        if max_episode_steps is not None:
            whole_number("TimeLimit: max_episode_steps", max_episode_steps, 1)
        return obs_shape, act_shape, rew_shape
