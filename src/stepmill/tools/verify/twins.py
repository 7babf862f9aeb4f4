"""Gymnasium's side of a comparison: single envs of Gymnasium, one for each env of a pool, and their actions."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.hosts.rows import snapshot
from stepmill.settings import Settings
from stepmill.tools.verify.comparing import Mismatch
from stepmill.tools.verify.results import Difference
from stepmill.values.trees import map_trees, tree_of

__all__ = ["Row", "Twin"]


class Row(NamedTuple):
    """What a twin returned: the fields by name, and the info, with the end of the last episode if it was reset."""

    fields: dict[str, Any]
    info: dict[Any, Any]


class Twin:
    """A single env of Gymnasium, which is played as the autoreset mode says. It knows how far it has got."""

    def __init__(self, env: gymnasium.Env[Any, Any], env_id: int, settings: Settings) -> None:
        self.env = env
        self.env_id = env_id
        self.steps = self.episode = self.episode_step = self.episodes_ended = 0
        self.ended = False
        self._seed: int | None = settings.seed[env_id]
        self._autoreset = settings.autoreset
        self._actor = _Actor(env.action_space, settings.seed[env_id], holds=env_id % 2 == 1)
        self._action: Any = None

    def choose_action(self) -> Any:
        """Draws the action of the next step, which waits here until the pool has done that step."""
        self._action = self._actor.draw()
        return self._action

    def reset(self) -> Row:
        """The first reset has a seed, the others have none."""
        self._begin_episode()
        seed, self._seed = self._seed, None
        obs, info = self.env.reset(seed=seed)
        return Row({"obs": obs, "reward": np.float64(0), "terminated": np.False_, "truncated": np.False_}, info)

    def step(self) -> Row:
        """One step with the chosen action, or what the autoreset mode does instead."""
        if self.ended and self._autoreset == "next_step":
            return self.reset()
        if self.ended:  # under same_step: what begins now was reset at the end of the last episode
            self._begin_episode()
        self.steps += 1
        self.episode_step += 1
        obs, reward, terminated, truncated, info = self.env.step(copy.deepcopy(self._action))
        self.ended = bool(terminated or truncated)
        self.episodes_ended += self.ended
        if self.ended and self._autoreset == "same_step":
            final = snapshot({"final_obs": obs, "final_info": info})  # the reset may write into them
            obs, info = self.env.reset()
            info = {**info, **final}
        # A pool has rewards as float64 and ends as bools, as Gymnasium's vector envs do.
        outcome = {"reward": np.asarray(reward, np.float64), "terminated": bool(terminated)}
        return Row({"obs": obs, **outcome, "truncated": bool(truncated)}, info)

    def _begin_episode(self) -> None:
        self.episode += 1
        self.episode_step = 0
        self.ended = False

    def difference(self, found: Mismatch) -> Difference:
        """What was found in the last row."""
        return Difference(self.env_id, self.steps, self.episode, self.episode_step, *found)


# ---- actions -------------------------------------------------------------------------------------

_HOLD = 0.9  # how often an env that repeats its actions does so
_BEYOND = 1 / 8  # how often an action is stretched


class _Actor:
    """Draws the actions of one env, the same ones for the same seed."""

    def __init__(self, space: spaces.Space[Any], seed: int, *, holds: bool) -> None:
        self._random = np.random.default_rng([seed, 1])  # the env draws from the generator of the seed itself
        self._space = copy.deepcopy(space)
        self._space.seed(int(self._random.integers(2**32)))
        self._hold = _HOLD if holds else 0.0
        self._action: Any = None

    def draw(self) -> Any:
        if self._action is None or self._random.random() >= self._hold:
            self._action = self._space.sample()
            if self._random.random() < _BEYOND:
                self._action = map_trees(_stretched, tree_of(self._space), self._action)
        return self._action


def _stretched(space: spaces.Space[Any], action: Any) -> Any:
    """A Box action twice as far from the middle of its bounds, so that about half of its numbers are beyond them."""
    if not isinstance(space, spaces.Box) or space.dtype is None or space.dtype.kind != "f":
        return action
    bounded = np.isfinite(space.low) & np.isfinite(space.high)
    middle = np.where(bounded, space.low / 2 + space.high / 2, action)
    return (action + (action - middle)).astype(space.dtype)
