"""The rows of a batch as the results of single envs, as Gymnasium's envs return them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill import _native
from stepmill.hosts.infos import rows_of_info
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import Tree, map_tree, map_trees, tree_of

Row = tuple[Any, Any, bool, bool, dict[str, Any]]  # observation, reward, terminated, truncated, info


class RowSplitter:
    """Splits batches in the form of the gymnasium view.

    What it returns has its own memory: an observation that is kept does not keep the batch.

    Args:
        observation: The space of the pool's envs, or of one player.
        num_players: How many players an env may have.
        player_kinds: See ``Host``.
    """

    def __init__(self, observation: FlatSpace, num_players: int, player_kinds: Sequence[str]) -> None:
        self._split = _splitter(observation.tree, tree_of(observation.space))
        self._has_players = num_players > 1
        self._kinds = player_kinds

    def __call__(self, batch: Any) -> list[tuple[int, Row]]:
        """The id of each env that has a row, and the row."""
        observation, reward, terminated, truncated, info = batch
        ids = info["env_id"].tolist()
        infos: list[dict[str, Any]] = [{} for _ in ids]
        if len(info) > 2:  # else it has only what pools tell of all rows
            infos = _infos(info, len(ids))
        flags = terminated.tolist(), truncated.tolist()
        if self._has_players:
            observations, rewards = self._by_env(observation, reward, info["players"], ids, infos)
        else:
            observations, rewards = self._split(observation), reward.tolist()
        return list(zip(ids, zip(observations, rewards, *flags, infos, strict=True), strict=True))

    def _by_env(
        self, observation: Any, reward: np.ndarray, players: dict[str, Any], ids: list[int], infos: list[dict[str, Any]]
    ) -> tuple[list[Any], list[np.ndarray]]:
        """A row per player that the env has now; ``info["players"]`` says which ones."""
        owners = players["env_id"]
        observations, rewards = [], []
        for env_id, info in zip(ids, infos, strict=True):
            its = owners == env_id
            if self._kinds:
                by_kind = {kind: owners[rows] == env_id for kind, rows in players["rows"].items()}
                observations.append({kind: _picked(part, by_kind[kind]) for kind, part in observation.items()})
            else:
                observations.append(_picked(observation, its))
            rewards.append(reward[its])
            info["players"] = {key: players[key][its] for key in ("id", "terminated", "truncated")}
        return observations, rewards


def _picked(columns: Any, rows: np.ndarray) -> Any:
    return map_tree(lambda column: column[rows], columns)


def _splitter(tree: Tree, space: Any) -> Callable[[Any], list[Any]]:
    """What makes a list of single values of a batched one."""
    if isinstance(tree, dict):
        by_key = {key: _splitter(child, space[key]) for key, child in tree.items()}

        def split_dict(batch: Any) -> list[Any]:
            columns = [split(batch[key]) for key, split in by_key.items()]
            return [dict(zip(by_key, values, strict=True)) for values in zip(*columns, strict=True)]

        return split_dict
    if isinstance(tree, tuple):
        parts = [_splitter(child, part) for child, part in zip(tree, space, strict=True)]
        return lambda batch: list(zip(*[split(one) for split, one in zip(parts, batch, strict=True)], strict=True))
    if tree < 0:
        return list  # of Python objects
    if isinstance(space, spaces.Discrete):
        return lambda column: column.tolist()
    return lambda column: _native.own_rows([(column, row) for row in range(len(column))])


def _infos(info: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What each env has told, and what the pool has counted of episodes that have ended."""
    infos = rows_of_info(info)
    for row in np.flatnonzero(info["_episode_return"]) if "_episode_return" in info else ():
        its = infos[row]
        its["episode_return"] = info["episode_return"][row].tolist()
        its["episode_length"] = int(info["episode_length"][row])
        if "final_obs" in its:  # a part of the batch's memory
            its["final_obs"] = map_tree(_copied, its["final_obs"])
    return infos


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def batch_of_one(tree: Tree, value: Any) -> Any:
    """The action of one env as a batch, for spaces with parts that are no arrays."""
    return map_trees(lambda _, part: [part], tree, value)
