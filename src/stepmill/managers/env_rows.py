"""From batches to timesteps of single envs."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stepmill import _native
from stepmill.envs.common.conversions import to_tensor
from stepmill.envs.timestep import LEFTOVER, BaseEnvTimestep, is_timestep
from stepmill.hosts.faults import Fault
from stepmill.hosts.rows import Note, RowFinisher, is_abnormal, raised_by
from stepmill.system.optional import TORCH, require
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import Tree, map_tree

# Where the manager keeps an observation: a batch of them and a row of it; or one that is in no batch, and _NO_BATCH.
StoredObs = tuple[Any, int]
_NO_BATCH = -1


class _RawRows(NamedTuple):
    """A batch, and what came with it that no array holds."""

    result: Any
    notes: Sequence[Note]
    faults: Sequence[Fault]


def result_of(batch: Any) -> Any:
    """The arrays of a batch, which may come with other things."""
    return batch.result if isinstance(batch, _RawRows) else batch


class RowsAsTheyCome(RowFinisher):
    """Keeps infos as one dict per env, and raises nothing: the manager handles failures."""

    takes_info_arrays = False

    def __call__(self, result: Any, notes: Sequence[Note], faults: Sequence[Fault]) -> tuple[Any, None]:
        if self.observation.object_spaces:
            result = (self._with_objects(result[0], dict(result[-1]), notes, len(result[2])), *result[1:])
        return _RawRows(result, notes, faults), None


class EnvRows(NamedTuple):
    """Results of some envs. ``special``: the rows that ended an episode, have an info, or failed."""

    ids: list[int]
    timesteps: list[BaseEnvTimestep]  # for a reset as well
    stored_obs: list[StoredObs]  # for the manager to keep: the caller may write to those in the timesteps
    special: set[int]
    faults: dict[int, Fault]  # by env id


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of a batch.

    Args:
        observation: The space of the pool.
        players: How many rows each env fills.
        reward_shape: The shape of one env's reward, as its author declares it.
        env_num: How many envs there are.
    """

    observation: FlatSpace
    players: int
    reward_shape: tuple[int, ...]
    env_num: int

    def __call__(self, batch: Any) -> EnvRows:
        rows = batch if isinstance(batch, _RawRows) else _RawRows(batch, (), ())
        observation, reward, terminated, truncated, info = rows.result
        ids = info["env_id"].tolist()
        stored = self._store(observation, len(ids))
        timesteps, ended = _native.make_timesteps(
            BaseEnvTimestep, _pick(self.observation.tree, stored), self._rewards(reward), terminated, truncated
        )
        faults: dict[int, Fault] = {}
        special: set[int] = set()
        if rows.notes or rows.faults:
            faults = self._read_notes(rows, timesteps, stored)
            special.update(note.row for note in rows.notes)
            special.update(row for row, env_id in enumerate(ids) if env_id in faults)
        special.update(ended)
        for row in ended:
            if not isinstance(timesteps[row].info, dict):  # with several players it is a list with one per player
                continue
            _complete_end(timesteps[row].info, row, bool(truncated[row] and not terminated[row]), info)
        return EnvRows(ids, timesteps, stored, special, faults)

    def _store(self, observation: Any, count: int) -> list[StoredObs]:
        if self.players > 1:
            is_array = type(observation) is np.ndarray  # nearly always
            observation = self._by_env(observation) if is_array else map_tree(self._by_env, observation)
        if 2 * count < self.env_num:  # the buffer has room for all envs: a copy of a few rows is smaller
            is_array = type(observation) is np.ndarray
            observation = observation.copy() if is_array else map_tree(_copied, observation)
        return list(zip(itertools.repeat(observation, count), range(count), strict=True))

    def _by_env(self, part: np.ndarray) -> np.ndarray:
        return part.reshape(-1, self.players, *part.shape[1:])

    def pick(self, stored: list[StoredObs]) -> list[Any]:
        """Copies of these observations."""
        in_batches = [one for one in stored if one[1] != _NO_BATCH]
        picked = _pick(self.observation.tree, in_batches)
        if len(picked) == len(stored):
            return picked
        rest = iter(picked)
        return [copy.deepcopy(batch) if row == _NO_BATCH else next(rest) for batch, row in stored]

    def _rewards(self, reward: np.ndarray) -> np.ndarray:
        """One row per env."""
        if self.players == 1:
            return reward
        by_env = reward.reshape(-1, self.players)
        # One reward for all players, if the space says so and they are equal.
        shared = self.reward_shape == (1,) and bool((by_env == by_env[:, :1]).all())
        return by_env[:, :1].copy() if shared else by_env

    def _read_notes(
        self, rows: _RawRows, timesteps: list[BaseEnvTimestep], stored: list[StoredObs]
    ) -> dict[int, Fault]:
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
                    stored[note.row] = (left.fields["obs"], _NO_BATCH)
                    timestep = timestep._replace(obs=copy.deepcopy(timestep.obs))
            timesteps[note.row] = timestep
        raised = raised_by(rows.notes)
        return {fault.env_id: fault.with_cause(raised.get(fault.env_id)) for fault in rows.faults}

    def _with_all_rewards(self, timestep: BaseEnvTimestep) -> BaseEnvTimestep:
        """For several agents or objectives in one row the pool has only the sum; their parts are in the info."""
        if self.players > 1 or self.reward_shape in ((1,), ()):
            return timestep
        rewards = timestep.info.get("rewards")
        if not isinstance(rewards, np.ndarray) or rewards.shape != self.reward_shape:
            return timestep
        del timestep.info["rewards"]
        return timestep._replace(reward=np.asarray(rewards, np.float32))


def any_abnormal(info: Any) -> bool:
    """Whether the info of a step, or that of one of its players, says that something went wrong."""
    if isinstance(info, Mapping):
        return is_abnormal(info)
    return any(isinstance(one, Mapping) and is_abnormal(one) for one in info)


def _complete_end(own: dict[str, Any], row: int, cut_off: bool, batch_info: dict[str, Any]) -> None:
    """Adds what the info at the end of an episode must have, even if the env is not a ``BaseEnv``."""
    if "eval_episode_return" not in own and "episode_return" in batch_info:
        own["eval_episode_return"] = own.get("final_eval_reward", float(batch_info["episode_return"][row]))
    if "eval_episode_return" in own:
        own.setdefault("final_eval_reward", own["eval_episode_return"])
    own.setdefault("TimeLimit.truncated", cut_off)


def _pick(tree: Tree, stored: list[StoredObs]) -> list[Any]:
    if isinstance(tree, dict):
        columns = [_pick(child, [(batch[key], row) for batch, row in stored]) for key, child in tree.items()]
        rows = zip(*columns, strict=True) if tree else [()] * len(stored)
        return [dict(zip(tree, row, strict=True)) for row in rows]
    if isinstance(tree, tuple):
        parts = [_pick(child, [(batch[i], row) for batch, row in stored]) for i, child in enumerate(tree)]
        return list(zip(*parts, strict=True)) if tree else [()] * len(stored)
    if tree < 0:
        return [copy.deepcopy(batch[row]) for batch, row in stored]
    return _native.own_rows(stored)


def _copied(value: Any) -> Any:
    """A copy of an array; anything else is copied when it is picked."""
    return value.copy() if isinstance(value, np.ndarray) else value


def with_tensors(value: Any) -> Any:
    """An observation as float32 tensors; of a timestep, the observation and the reward."""
    torch = require(*TORCH, "output='torch'")
    if is_timestep(value):
        return value._replace(obs=to_tensor(value.obs, torch.float32), reward=to_tensor(value.reward, torch.float32))
    return to_tensor(value, torch.float32)
