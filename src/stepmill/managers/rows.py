"""From batches to timesteps of single envs, and from actions of single envs to batches."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stepmill.envs.common import to_tensor
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ActionError
from stepmill.optional import require
from stepmill.pool.faults import Fault
from stepmill.pool.rows import Note, RowFinisher
from stepmill.spaces import FlatSpace, Tree

__all__ = ["EnvRows", "RowReader", "RowsAsTheyCome", "all_copied", "as_arrays", "stack_actions", "with_tensors"]


class _Rows(NamedTuple):
    """A batch with what came beside its arrays, unassembled."""

    result: Any
    notes: Sequence[Note]
    faults: Sequence[Fault]


class RowsAsTheyCome(RowFinisher):
    """Leaves infos apart, an env's own dict each, and raises nothing: the manager settles failures."""

    def __call__(self, result: Any, notes: Sequence[Note], faults: Sequence[Fault]) -> Any:
        if self.observation.object_spaces:
            result = (self._with_objects(result[0], result[-1], notes, len(result[2])), *result[1:])
        return _Rows(result, notes, faults)


# BaseEnvTimestep from a tuple of four, without a line of Python for each.
_new_timestep: Callable[[tuple[Any, ...]], BaseEnvTimestep] = functools.partial(tuple.__new__, BaseEnvTimestep)


class EnvRows(NamedTuple):
    """What came of some envs. ``special``: those rows that ended, have an info, or failed."""

    ids: list[int]
    timesteps: list[BaseEnvTimestep]  # of a reset, too
    observations: list[Any]  # the same as theirs, for the manager to keep: the caller may write into its own
    special: set[int]
    faults: dict[int, Fault]  # by env id


@dataclass(frozen=True)
class RowReader:
    """Reads the rows of a batch.

    Args:
        observation: The space of the pool.
        players: Rows that an env fills.
        reward_shape: Of one env, as its author has it.
        copies: Whether observations are copied out of the batch.
        env_num: How many envs there are.
    """

    observation: FlatSpace
    players: int
    reward_shape: tuple[int, ...]
    copies: bool
    env_num: int

    def __call__(self, batch: Any) -> EnvRows:
        rows = batch if isinstance(batch, _Rows) else _Rows(batch, (), ())
        observation, reward, terminated, truncated, info = rows.result
        ids = info["env_id"].tolist()
        done = (terminated | truncated).tolist()
        infos: list[dict[str, Any]] = [{} for _ in ids]
        faults: dict[int, Fault] = {}
        special: set[int] = set()
        if rows.notes or rows.faults:
            faults = self._read_notes(rows, infos)
            special.update(note.row for note in rows.notes)
            special.update(row for row, env_id in enumerate(ids) if env_id in faults)
        if True in done:
            for row in [row for row, over in enumerate(done) if over]:
                infos[row] = _ending(infos[row], row, bool(truncated[row] and not terminated[row]), info)
                special.add(row)
        kept, seen = self._observations(observation, len(ids))
        rewards = self._rewards(reward, infos)
        timesteps = list(map(_new_timestep, zip(seen, rewards, done, infos, strict=True)))
        return EnvRows(ids, timesteps, kept, special, faults)

    def _read_notes(self, rows: _Rows, infos: list[dict[str, Any]]) -> dict[int, Fault]:
        raised = {}
        for note in rows.notes:
            if note.info:
                infos[note.row] = note.info
            if note.error is not None:
                raised[note.env_id] = note
        return {
            fault.env_id: fault.caused_by(raised[fault.env_id].error, raised[fault.env_id].phase)
            if fault.env_id in raised
            else fault
            for fault in rows.faults
        }

    def _observations(self, observation: Any, count: int) -> tuple[list[Any], list[Any]]:
        """Rows to keep, and rows to hand out."""
        if self.players > 1:
            observation = _by_env(observation, self.players)
        # A row keeps its buffer, which holds all envs: of a few of them a copy is less.
        few = 2 * count < self.env_num
        kept = self._rows(_copied(observation) if few else observation, count)
        return kept, all_copied(kept) if self.copies else self._rows(_copied(observation), count)

    def _rows(self, observation: Any, count: int) -> list[Any]:
        tree = self.observation.tree
        if tree == 0 and observation.ndim > 1:
            return list(observation)
        return [_row_of(tree, observation, row) for row in range(count)]

    def _rewards(self, reward: np.ndarray, infos: list[dict[str, Any]]) -> Sequence[np.ndarray]:
        reward = reward.copy()  # who keeps a reward does not keep a batch
        if self.players > 1:
            by_env = reward.reshape(-1, self.players)
            # One for all, where the space says so and it is so.
            shared = self.reward_shape == (1,) and bool((by_env == by_env[:, :1]).all())
            return list(by_env[:, :1] if shared else by_env)
        rewards = list(reward.reshape(-1, 1))
        if self.reward_shape not in ((1,), ()):  # of agents or objectives: the pool has only their sum
            for row, own in enumerate(infos):
                if isinstance(own.get("rewards"), np.ndarray) and own["rewards"].shape == self.reward_shape:
                    infos[row] = {key: value for key, value in own.items() if key != "rewards"}
                    rewards[row] = np.asarray(own["rewards"], np.float32)
        return rewards


def _ending(own: dict[str, Any] | None, row: int, cut_off: bool, batch_info: dict[str, Any]) -> dict[str, Any]:
    """The info of an end: what the contract wants is there, also where the env is not a ``BaseEnv``."""
    out = dict(own or {})
    if "eval_episode_return" not in out and "episode_return" in batch_info:
        out["eval_episode_return"] = out.get("final_eval_reward", float(batch_info["episode_return"][row]))
    if "eval_episode_return" in out:
        out.setdefault("final_eval_reward", out["eval_episode_return"])
    out.setdefault("TimeLimit.truncated", cut_off)
    return out


def _by_env(value: Any, players: int) -> Any:
    if isinstance(value, dict):
        return {key: _by_env(child, players) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_by_env(child, players) for child in value)
    return value.reshape(-1, players, *value.shape[1:])


def _row_of(tree: Tree, value: Any, row: int) -> Any:
    if isinstance(tree, dict):
        return {key: _row_of(child, value[key], row) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return tuple(_row_of(child, part, row) for child, part in zip(tree, value, strict=True))
    return value[row] if tree < 0 else value[row, ...]  # an array, of a single number too


def all_copied(values: list[Any]) -> list[Any]:
    """Every value with its arrays copied."""
    if set(map(type, values)) == {np.ndarray}:
        return list(map(np.ndarray.copy, values))
    return [_copied(value) for value in values]


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        return {key: _copied(child) for key, child in value.items()}
    if type(value) is tuple:
        return tuple(_copied(child) for child in value)
    return copy.deepcopy(value)  # of no array; text and numbers come out as they are


def with_tensors(value: Any) -> Any:
    """An observation as float32 tensors; of a timestep the reward too, and the info stays as it is."""
    torch = require("torch", "torch", "torch", "output='torch'")
    if isinstance(value, BaseEnvTimestep):
        return value._replace(obs=to_tensor(value.obs, torch.float32), reward=to_tensor(value.reward, torch.float32))
    return to_tensor(value, torch.float32)


# ---- actions -------------------------------------------------------------------------------------


_PLAIN = {int, float, np.ndarray, np.int64, np.int32, np.float32, np.float64}


def as_arrays(actions: Iterable[Any]) -> list[Any]:
    """Actions with their tensors as arrays, in whatever they are nested."""
    given = list(actions)
    return given if set(map(type, given)) <= _PLAIN else [_as_array(one) for one in given]


def _as_array(action: Any) -> Any:
    if isinstance(action, dict):
        return {key: _as_array(child) for key, child in action.items()}
    if isinstance(action, tuple | list):
        return type(action)(_as_array(child) for child in action) if type(action) in (tuple, list) else action
    return action.detach().cpu().numpy() if hasattr(action, "detach") else action


def stack_actions(space: FlatSpace, actions: Sequence[Any], players: int) -> Any:
    """Actions of single envs as a batch: a row an env, in every part."""
    return _stack(space.tree, space, actions, players, "action")


def _stack(tree: Tree, space: FlatSpace, actions: Sequence[Any], players: int, path: str) -> Any:
    if isinstance(tree, dict):
        _check_parts(actions, dict, lambda one: set(one) == set(tree), f"a dict with the keys {list(tree)}", path)
        return {
            key: _stack(child, space, [one[key] for one in actions], players, f"{path}[{key!r}]")
            for key, child in tree.items()
        }
    if isinstance(tree, tuple):
        _check_parts(actions, tuple | list, lambda one: len(one) == len(tree), f"a tuple of {len(tree)}", path)
        return tuple(
            _stack(child, space, [one[i] for one in actions], players, f"{path}[{i}]") for i, child in enumerate(tree)
        )
    if tree < 0:
        return list(actions)
    shape = space.leaves[tree].shape if players == 1 else (players, *space.leaves[tree].shape)
    try:
        stacked = np.array(actions)
    except ValueError:  # of different shapes
        stacked = None
    if stacked is None or not _fits(stacked.shape[1:], shape):
        arrays = [np.asarray(one) for one in actions]
        if not all(_fits(one.shape, shape) for one in arrays):
            got = ", ".join(map(str, sorted({one.shape for one in arrays})))
            raise ActionError(f"{path}: expected shape {shape} of every env, got {got}")
        stacked = np.array([one.reshape(shape) for one in arrays])
    return stacked.reshape(len(actions) * players, *space.leaves[tree].shape)


def _fits(got: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """A Discrete action may have shape (1,), as policies give it: axes of one element are nobody's loss."""
    return [n for n in got if n != 1] == [n for n in expected if n != 1]


def _check_parts(actions: Sequence[Any], kind: Any, fits: Any, expected: str, path: str) -> None:
    for one in actions:
        if not isinstance(one, kind) or not fits(one):
            raise ActionError(f"{path}: expected {expected}, got {one!r}")
