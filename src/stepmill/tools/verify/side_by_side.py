"""Plays a pool and its twins side by side: single envs of Gymnasium, one for each env of the pool.

What they return is compared bit for bit: 0.0 is not -0.0, float32 is not float64. Only NaN equals every other NaN.
"""

from __future__ import annotations

import copy
import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from stepmill.errors import EnvError, summary
from stepmill.hosts.infos import engine_keys
from stepmill.hosts.rollout.steps import StepBatch
from stepmill.hosts.rows import snapshot
from stepmill.settings import Settings
from stepmill.tools.verify.results import Difference
from stepmill.values.trees import map_tree, map_trees, step_into, tree_of


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
            found = mismatch(name, _row(column, row), theirs.fields[name])
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
        # A pool has rewards as float64 and ends as bools, as Gymnasium's vector envs do; on a GPU, rewards as float32.
        self._reward = np.float32 if settings.backend == "cuda" else np.float64
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
        return Row({"obs": obs, "reward": self._reward(0), "terminated": np.False_, "truncated": np.False_}, info)

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
        outcome = {"reward": np.asarray(reward, self._reward), "terminated": bool(terminated)}
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


# ---- the first difference ------------------------------------------------------------------------


class _Nothing(enum.Enum):
    NOTHING = "nothing"

    def __repr__(self) -> str:
        return self.value

    __str__ = __repr__


NOTHING: Final = _Nothing.NOTHING
"""Stands for a value that only the other side has. None could be a value."""


class Mismatch(NamedTuple):
    """The path of the first part that differs, and this part on both sides."""

    field: str
    ours: Any
    theirs: Any


def mismatch(path: str, ours: Any, theirs: Any) -> Mismatch | None:
    """The first difference of two values, each of them numbers, arrays, or dicts and tuples of these."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in dict.fromkeys([*theirs, *ours]):
            found = mismatch(step_into(path, key), ours.get(key, NOTHING), theirs.get(key, NOTHING))
            if found is not None:
                return found
        return None
    if isinstance(ours, tuple) and isinstance(theirs, tuple) and len(ours) == len(theirs):
        parts = (mismatch(step_into(path, i), *pair) for i, pair in enumerate(zip(ours, theirs, strict=True)))
        return next((found for found in parts if found is not None), None)
    if isinstance(ours, bool | int | float | np.generic | np.ndarray):
        return _number_mismatch(path, np.asarray(ours), theirs)
    return None if type(ours) is type(theirs) and ours == theirs else Mismatch(path, ours, theirs)


def _number_mismatch(path: str, ours: np.ndarray, theirs: Any) -> Mismatch | None:
    # An int has no dtype, and Gymnasium's infos mix 1 and 1.0. A whole number that the user gave for a float stays one.
    if type(theirs) is int or (isinstance(theirs, np.integer) and ours.dtype == np.float64):
        may_hold = ours.ndim == 0 and (ours.dtype.kind in "iu" or ours.dtype == np.float64)
        return None if may_hold and ours.item() == theirs else Mismatch(path, ours[()], theirs)
    if not isinstance(theirs, bool | float | np.generic | np.ndarray):
        return Mismatch(path, ours[()], theirs)
    other = np.asarray(theirs)
    if ours.shape != other.shape:
        return Mismatch(f"{path}.shape", ours.shape, other.shape)
    if ours.dtype != other.dtype:
        return Mismatch(f"{path}.dtype", ours.dtype, other.dtype)
    if ours.tobytes() == other.tobytes():
        return None
    for index in np.ndindex(ours.shape):
        a, b = ours[index], other[index]
        if a.tobytes() != b.tobytes() and not (a != a and b != b):
            return Mismatch(f"{path}[{', '.join(map(str, index))}]" if index else path, a, b)
    return None  # they only write NaN in different ways


def info_mismatch(
    path: str, columns: Mapping[Any, Any], row: int, own: Mapping[Any, Any], left_out: frozenset[str] = frozenset()
) -> Mismatch | None:
    """The first difference between one row of the info of a batch and the info of a single env.

    The row has a key if the mask ``_key`` says so. A key that no row has must not be there at all.
    """
    for key, value in own.items():
        if key in left_out:
            continue
        found = _key_mismatch(path, columns, row, key, value)
        if found is not None:
            return found
    for key, column in columns.items():
        if key in own or key in left_out or _is_mask(key, columns):
            continue
        mask = columns.get(f"_{key}")
        if mask is None or mask[row] or not mask.any():
            return Mismatch(step_into(path, key), _row(column, row), NOTHING)
    return None


def _key_mismatch(path: str, columns: Mapping[Any, Any], row: int, key: Any, value: Any) -> Mismatch | None:
    if key not in columns:
        return Mismatch(step_into(path, key), NOTHING, value)
    mask = columns.get(f"_{key}")
    if mask is None:
        return Mismatch(step_into(path, f"_{key}"), NOTHING, True)
    if not mask[row]:
        return Mismatch(step_into(path, key), NOTHING, value)
    if isinstance(columns[key], dict) and isinstance(value, Mapping):
        return info_mismatch(step_into(path, key), columns[key], row, value)
    return mismatch(step_into(path, key), _row(columns[key], row), value)


def _is_mask(key: Any, columns: Mapping[Any, Any]) -> bool:
    return isinstance(key, str) and key.startswith("_") and key[1:] in columns


def _row(columns: Any, row: int) -> Any:
    return map_tree(lambda column: column[row], columns)
