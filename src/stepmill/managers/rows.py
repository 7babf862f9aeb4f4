"""From batches to timesteps of single envs, and from actions of single envs to batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ActionError
from stepmill.pool.faults import Fault
from stepmill.pool.rows import Note, RowFinisher
from stepmill.spaces import FlatSpace, Tree

__all__ = ["EnvRow", "RowsAsTheyCome", "read_rows", "stack_actions"]


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


class EnvRow(NamedTuple):
    """What came of one env: an observation after a reset, a timestep after a step, or why there is none."""

    env_id: int
    timestep: BaseEnvTimestep
    fault: Fault | None


def read_rows(batch: Any, tree: Tree, players: int, shared_reward: bool, copies: bool) -> list[EnvRow]:
    """The rows of a batch, those of a reset as timesteps too."""
    rows = batch if isinstance(batch, _Rows) else _Rows(batch, (), ())
    observation, reward, terminated, truncated, info = rows.result
    if players > 1:
        observation = _by_env(observation, players)
        reward = reward.reshape(-1, players)[:, :1] if shared_reward else reward.reshape(-1, players)
    else:
        reward = reward.reshape(-1, 1)
    infos: dict[int, dict[str, Any]] = {note.row: note.info for note in rows.notes if note.info}
    raised = {note.env_id: note for note in rows.notes if note.error is not None}
    faults = {
        fault.env_id: fault.caused_by(raised[fault.env_id].error, raised[fault.env_id].phase)
        if fault.env_id in raised
        else fault
        for fault in rows.faults
    }
    done = (terminated | truncated).tolist()
    ids = info["env_id"].tolist()
    out = []
    for row, env_id in enumerate(ids):
        own = infos.get(row)
        if done[row]:
            own = _ending(own, row, bool(truncated[row] and not terminated[row]), info)
        seen = observation[row, ...] if tree == 0 else _row_of(tree, observation, row)
        if copies:
            seen = _copied(seen)
        rewards = reward[row]
        if own is not None and "rewards" in own and players == 1:  # of many agents, or objectives
            own = dict(own)
            rewards = np.asarray(own.pop("rewards"), np.float32)
        out.append(EnvRow(env_id, BaseEnvTimestep(seen, rewards, done[row], own or {}), faults.get(env_id)))
    return out


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


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(_copied(child) for child in value)
    return value.copy() if isinstance(value, np.ndarray) else value


# ---- actions -------------------------------------------------------------------------------------


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
    shape = space.leaves[tree].shape
    try:
        stacked = np.asarray([np.asarray(one) for one in actions])
    except ValueError:
        shapes = {np.shape(one) for one in actions}
        raise ActionError(f"{path}: expected shape {shape} of every env, got {sorted(shapes)}") from None
    rows = len(actions) * players
    # A Discrete action of shape (1,), as policies give it.
    if stacked.size == rows * int(np.prod(shape)):
        return stacked.reshape(rows, *shape)
    return stacked


def _check_parts(actions: Sequence[Any], kind: Any, fits: Any, expected: str, path: str) -> None:
    for one in actions:
        if not isinstance(one, kind) or not fits(one):
            raise ActionError(f"{path}: expected {expected}, got {one!r}")
