"""From batches to timesteps of single envs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stepmill import _native
from stepmill.envs.adapters.leftover import LEFTOVER
from stepmill.envs.common import to_tensor
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.optional import require
from stepmill.pool.faults import Fault
from stepmill.pool.rows import Note, RowFinisher, is_abnormal, raised_by
from stepmill.spaces import FlatSpace
from stepmill.trees import Tree, map_tree

__all__ = ["EnvRows", "Place", "RowReader", "RowsAsTheyCome", "tells_abnormal", "with_tensors"]

Place = tuple[Any, int]  # a batch of observations, and a row of it; or an observation that no batch holds, and _APART
_APART = -1


class _Rows(NamedTuple):
    """A batch, and apart from it what came beside its arrays."""

    result: Any
    notes: Sequence[Note]
    faults: Sequence[Fault]


class RowsAsTheyCome(RowFinisher):
    """Leaves infos apart, one dict per env, and raises nothing: the manager deals with failures."""

    def __call__(self, result: Any, notes: Sequence[Note], faults: Sequence[Fault]) -> tuple[Any, None]:
        if self.observation.object_spaces:
            result = (self._with_objects(result[0], dict(result[-1]), notes, len(result[2])), *result[1:])
        return _Rows(result, notes, faults), None


class EnvRows(NamedTuple):
    """What came from some envs. ``special``: the rows that ended, have an info, or failed."""

    ids: list[int]
    timesteps: list[BaseEnvTimestep]  # for a reset, too
    places: list[Place]  # of their observations, for the manager to keep: the caller may write into its own
    special: set[int]
    faults: dict[int, Fault]  # by env id


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of a batch.

    Args:
        observation: The space of the pool.
        players: How many rows an env fills.
        reward_shape: The shape of one env's reward, as its author has it.
        env_num: How many envs there are.
    """

    observation: FlatSpace
    players: int
    reward_shape: tuple[int, ...]
    env_num: int

    def __call__(self, batch: Any) -> EnvRows:
        rows = batch if isinstance(batch, _Rows) else _Rows(batch, (), ())
        observation, reward, terminated, truncated, info = rows.result
        ids = info["env_id"].tolist()
        places = self._places(observation, len(ids))
        timesteps, ended = _native.make_timesteps(
            BaseEnvTimestep, _pick(self.observation.tree, places), self._rewards(reward), terminated, truncated
        )
        faults: dict[int, Fault] = {}
        special: set[int] = set()
        if rows.notes or rows.faults:
            faults = self._read_notes(rows, timesteps, places)
            special.update(note.row for note in rows.notes)
            special.update(row for row, env_id in enumerate(ids) if env_id in faults)
        special.update(ended)
        for row in ended:
            if not isinstance(timesteps[row].info, dict):  # several players have one each
                continue
            _complete_end(timesteps[row].info, row, bool(truncated[row] and not terminated[row]), info)
        return EnvRows(ids, timesteps, places, special, faults)

    def _places(self, observation: Any, count: int) -> list[Place]:
        if self.players > 1:
            is_array = type(observation) is np.ndarray  # nearly always
            observation = self._by_env(observation) if is_array else map_tree(self._by_env, observation)
        if 2 * count < self.env_num:  # it keeps a buffer with room for all envs: a copy of a few rows is smaller
            is_array = type(observation) is np.ndarray
            observation = observation.copy() if is_array else map_tree(_copied, observation)
        return list(zip(itertools.repeat(observation, count), range(count), strict=True))

    def _by_env(self, part: np.ndarray) -> np.ndarray:
        return part.reshape(-1, self.players, *part.shape[1:])

    def pick(self, places: list[Place]) -> list[Any]:
        """The observations at these places, copies all of them."""
        apart = [place for place in places if place[1] == _APART]
        if not apart:
            return _pick(self.observation.tree, places)
        picked = iter(_pick(self.observation.tree, [place for place in places if place[1] != _APART]))
        return [copy.deepcopy(batch) if row == _APART else next(picked) for batch, row in places]

    def _rewards(self, reward: np.ndarray) -> np.ndarray:
        """One row per env."""
        if self.players == 1:
            return reward
        by_env = reward.reshape(-1, self.players)
        # One reward for all players, where the space says so and they are equal.
        shared = self.reward_shape == (1,) and bool((by_env == by_env[:, :1]).all())
        return by_env[:, :1].copy() if shared else by_env

    def _read_notes(self, rows: _Rows, timesteps: list[BaseEnvTimestep], places: list[Place]) -> dict[int, Fault]:
        for note in rows.notes:
            if not note.info:
                continue
            timestep = timesteps[note.row]
            timestep.info.update(note.info)
            left = timestep.info.pop(LEFTOVER, None)
            timestep = self._with_all_rewards(timestep)
            if left is not None:
                timestep = left.put_back(timestep)
                if "obs" in left.fields:
                    places[note.row] = (left.fields["obs"], _APART)
                    timestep = timestep._replace(obs=copy.deepcopy(timestep.obs))
            timesteps[note.row] = timestep
        raised = raised_by(rows.notes)
        return {fault.env_id: fault.with_cause(raised.get(fault.env_id)) for fault in rows.faults}

    def _with_all_rewards(self, timestep: BaseEnvTimestep) -> BaseEnvTimestep:
        """For agents or objectives in one row the pool has only the sum; the adapter left the parts in the info."""
        if self.players > 1 or self.reward_shape in ((1,), ()):
            return timestep
        rewards = timestep.info.get("rewards")
        if not isinstance(rewards, np.ndarray) or rewards.shape != self.reward_shape:
            return timestep
        del timestep.info["rewards"]
        return timestep._replace(reward=np.asarray(rewards, np.float32))


def tells_abnormal(info: Any) -> bool:
    """Whether an env says that something went wrong in a step; with several players, whether one of them does."""
    if isinstance(info, Mapping):
        return is_abnormal(info)
    return any(isinstance(one, Mapping) and is_abnormal(one) for one in info)


def _complete_end(own: dict[str, Any], row: int, cut_off: bool, batch_info: dict[str, Any]) -> None:
    """Adds what the info of an end must have, also where the env is not a ``BaseEnv``."""
    if "eval_episode_return" not in own and "episode_return" in batch_info:
        own["eval_episode_return"] = own.get("final_eval_reward", float(batch_info["episode_return"][row]))
    if "eval_episode_return" in own:
        own.setdefault("final_eval_reward", own["eval_episode_return"])
    own.setdefault("TimeLimit.truncated", cut_off)


def _pick(tree: Tree, places: list[Place]) -> list[Any]:
    if isinstance(tree, dict):
        columns = [_pick(child, [(batch[key], row) for batch, row in places]) for key, child in tree.items()]
        rows = zip(*columns, strict=True) if tree else [()] * len(places)
        return [dict(zip(tree, row, strict=True)) for row in rows]
    if isinstance(tree, tuple):
        parts = [_pick(child, [(batch[i], row) for batch, row in places]) for i, child in enumerate(tree)]
        return list(zip(*parts, strict=True)) if tree else [()] * len(places)
    if tree < 0:
        return [copy.deepcopy(batch[row]) for batch, row in places]
    return _native.own_rows(places)


def _copied(value: Any) -> Any:
    """Whatever is not an array is copied when it is picked."""
    return value.copy() if isinstance(value, np.ndarray) else value


def with_tensors(value: Any) -> Any:
    """An observation as float32 tensors; in a timestep the reward too, and the info stays as it is."""
    torch = require("torch", "torch", "torch", "output='torch'")
    if BaseEnvTimestep._fields == getattr(value, "_fields", ())[:4]:
        return value._replace(obs=to_tensor(value.obs, torch.float32), reward=to_tensor(value.reward, torch.float32))
    return to_tensor(value, torch.float32)
