"""Plays a pool and its twins side by side: single envs of Gymnasium, one for each env of the pool."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from stepmill.errors import EnvError, summary
from stepmill.hosts.infos import engine_keys
from stepmill.hosts.rollout.steps import StepBatch
from stepmill.hosts.rows import snapshot
from stepmill.settings import Settings
from stepmill.tools.verify.comparing import NOTHING, Mismatch, column_mismatch, info_mismatch
from stepmill.tools.verify.results import Difference
from stepmill.values.trees import map_trees, tree_of


class Twins:
    """Gymnasium's side of a comparison: they choose the actions of a pool, step with it, and compare."""

    def __init__(self, twins: Sequence[Twin], settings: Settings) -> None:
        self._twins = twins
        self._autoreset = settings.autoreset
        # What the engine adds has no counterpart in a single env, except the end of an episode that it has reset.
        finals = {"final_obs", "_final_obs", "final_info", "_final_info"}
        self._left_out = engine_keys(settings.autoreset) - finals

    def play(self, pool: Any, steps: int, progress: Callable[[int], None] = lambda steps: None) -> Difference | None:
        """Plays until ``steps`` steps are compared, or something differs. ``progress`` is told of each batch."""
        by_hand = itertools.repeat(None) if self._autoreset == "disabled" else None
        for batch in pool.play(self._actions, episodes=by_hand, raise_errors=False):
            difference = self._first_difference(batch)
            if difference is not None or sum(twin.steps for twin in self._twins) >= steps:
                return difference
            progress(len(batch.env_ids))
        return None

    def _actions(self, observations: Any, env_ids: np.ndarray, generators: Any) -> Any:
        actions = [self._twins[env_id].choose_action() for env_id in env_ids]
        space = self._twins[0].env.action_space
        empty: Any = create_empty_array(space, len(actions))
        return (concatenate(space, actions, empty),)

    def _first_difference(self, batch: StepBatch) -> Difference | None:
        """Plays the twins of these rows until one differs."""
        failures = {} if batch.error is None else {one.env_id: one for one in batch.error.errors}
        for row, env_id in enumerate(batch.env_ids.tolist()):
            twin: Twin = self._twins[env_id]
            found = self._row_mismatch(row, twin, batch, failures.get(env_id))
            if found is not None:
                return twin.difference(found)
        return None

    def _row_mismatch(self, row: int, twin: Twin, batch: StepBatch, failure: EnvError | None) -> Mismatch | None:
        try:
            theirs = twin.step()
        except Exception as error:
            if failure is not None:  # both failed, so there is nothing to compare
                raise failure from error
            return Mismatch("exception", NOTHING, summary(error))
        if failure is not None:
            return Mismatch("exception", summary(failure), NOTHING)
        fields = {
            "obs": batch.observations,
            "reward": batch.rewards,
            "terminated": batch.terminated,
            "truncated": batch.truncated,
        }
        if self._autoreset == "same_step":  # if only one has ended, its observation is of another episode
            fields["obs"] = fields.pop("obs")
        for name, column in fields.items():
            found = column_mismatch(name, column, row, theirs.fields[name])
            if found is not None:
                return found
        return info_mismatch("info", batch.info, row, theirs.info, self._left_out)


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

    def _reset(self) -> Row:
        """The first reset has a seed, the others have none."""
        self._begin_episode()
        seed, self._seed = self._seed, None
        obs, info = self.env.reset(seed=seed)
        return Row({"obs": obs, "reward": np.float64(0), "terminated": np.False_, "truncated": np.False_}, info)

    def step(self) -> Row:
        """One step with the chosen action, or what the pool does instead: the first time, and after an end, a reset."""
        if not self.episode or (self.ended and self._autoreset != "same_step"):
            return self._reset()
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
