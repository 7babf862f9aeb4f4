"""Where the parts of a pool's batches are in tensordicts, if envs have several players: nested, by group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Composite, Unbounded

from stepmill.interop.torchrl.group import Group, check_keys
from stepmill.interop.torchrl.layout import DONE_KEYS, ended_flags, no_flags
from stepmill.interop.torchrl.specs import flags_spec
from stepmill.values.trees import Tree, map_tree
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["PlayerLayout"]

_ALL, _ONE = "agents", "agent"  # the group of players that are all of one kind, and one of them


class PlayerLayout:
    """A group per kind of player, with a place for each player that may be there, and flags per env beside them.

    ``mask`` says whose places are taken. The others are zero, and done.
    """

    def __init__(self, pool: GymnasiumPool[Any], one_hot: bool) -> None:
        kinds = pool._host.player_kinds
        self._has_kinds = bool(kinds)
        self._num_envs = pool.num_envs
        of_each = kinds or (_ALL,) * pool._host.num_players
        check_keys(of_each, "kinds of players")
        self._sizes = {kind: of_each.count(kind) for kind in sorted(set(of_each))}
        self.group_map = {
            kind: [f"{kind if kinds else _ONE}_{i}" for i in range(size)] for kind, size in self._sizes.items()
        }
        self._place = np.array([of_each[:i].count(kind) for i, kind in enumerate(of_each)])  # of a player in its group
        seen, acts = pool.single_observation_space, pool.single_action_space
        self._groups = {
            kind: Group(self._of_kind(seen, kind), self._of_kind(acts, kind), one_hot, taken="mask")
            for kind in self.group_map
        }
        self._make_specs(pool.num_envs)

    def _make_specs(self, count: int) -> None:
        seen, acts, rewards, flags = {}, {}, {}, {}
        for kind, group in self._groups.items():
            shape = (count, self._sizes[kind])
            seen[kind], acts[kind] = group.observation_spec(*shape), group.action_spec(*shape)
            seen[kind]["mask"] = flags_spec(*shape)
            rewards[kind] = Composite({"reward": Unbounded((*shape, 1), dtype=torch.float32)}, shape=shape)
            flags[kind] = Composite({key: flags_spec(*shape, 1) for key in DONE_KEYS}, shape=shape)
        own = {key: flags_spec(count, 1) for key in DONE_KEYS}
        self.observation_spec = Composite(seen, shape=(count,))
        self.action_spec = Composite(acts, shape=(count,))
        self.reward_spec = Composite(rewards, shape=(count,))
        self.done_spec = Composite({**own, **flags}, shape=(count,))

    def first(self, observation: Tree, info: dict[str, Any]) -> dict[str, Any]:
        out = no_flags(len(info["env_id"]), 1)
        for kind, group, rows in self._rows(info):
            seen = map_tree(rows.arrange, group.observation(self._of_kind(observation, kind)))
            seen["mask"] = rows.arrange(rows.goes_on)
            out[kind] = TensorDict({**seen, **no_flags(*rows.shape, 1)}, batch_size=rows.shape)
        return out

    def following(
        self, observation: Tree, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
    ) -> dict[str, Any]:
        out = ended_flags(terminated, truncated)
        for kind, group, rows in self._rows(info):
            seen = map_tree(rows.arrange, group.observation(self._of_kind(observation, kind)))
            seen["mask"] = rows.arrange(rows.goes_on)
            seen["reward"] = rows.arrange(reward[rows.numbers].unsqueeze(-1).to(torch.float32))
            flags = ended_flags(rows.arrange(rows.terminated, absent=True), rows.arrange(rows.truncated))
            out[kind] = TensorDict({**seen, **flags}, batch_size=rows.shape)
        return out

    def action(self, tensordict: TensorDictBase) -> Tree:
        actions = {
            kind: map_tree(lambda part: part.flatten(0, 1), group.action(tensordict.get((kind, "action"))))
            for kind, group in self._groups.items()
        }
        return actions if self._has_kinds else actions[_ALL]

    def _of_kind(self, value: Any, kind: str) -> Any:
        return value[kind] if self._has_kinds else value

    def _rows(self, info: dict[str, Any]) -> Iterator[tuple[str, Group, _Rows]]:
        players = info["players"]
        env_row = np.empty(self._num_envs, np.int64)
        env_row[info["env_id"]] = np.arange(len(info["env_id"]))
        for kind, group in self._groups.items():
            numbers = players["rows"][kind] if self._has_kinds else slice(None)
            shape = len(info["env_id"]), self._sizes[kind]
            places = env_row[players["env_id"][numbers]] * shape[1] + self._place[players["id"][numbers]]
            yield kind, group, _Rows(players, numbers, places, shape)


class _Rows:
    """The rows of a batch that belong to players of one kind."""

    def __init__(self, players: Any, numbers: Any, places: np.ndarray, shape: tuple[int, int]) -> None:
        self.numbers = numbers  # which of all rows they are
        self.shape = shape  # envs, places for players in each
        self.terminated = torch.as_tensor(players["terminated"][numbers])
        self.truncated = torch.as_tensor(players["truncated"][numbers])
        self.goes_on = ~(self.terminated | self.truncated)
        self._is_full = len(places) == shape[0] * shape[1] and bool((places[1:] > places[:-1]).all())
        self._places = torch.as_tensor(places)

    def arrange(self, rows: Any, absent: bool | int = 0) -> Any:
        """A tensor with a place for every player of every env, from the rows of those that are there."""
        if self._is_full:
            return rows.unflatten(0, self.shape)
        out = rows.new_full((self.shape[0] * self.shape[1], *rows.shape[1:]), absent)
        out[self._places] = rows
        return out.unflatten(0, self.shape)
