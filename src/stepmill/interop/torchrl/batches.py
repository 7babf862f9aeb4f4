"""A pool's batches as tensordicts, and actions from them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Composite, Unbounded

from stepmill.interop.pools import check_pool
from stepmill.interop.torchrl.group import Group, check_keys, flags_spec
from stepmill.settings import check_seeds
from stepmill.values.trees import Tree, map_tree, map_trees
from stepmill.views.gymnasium import GymnasiumPool


def tensor_pool(given: Any, user: str) -> GymnasiumPool[Any]:
    """The pool, with tensors as its output whatever it had before."""
    pool = check_pool(given, user, "TorchRL", tensors=True, players=True)
    return pool if pool.settings.output == "torch" else GymnasiumPool.over(pool, output="torch")


class Step(NamedTuple):
    """A batch after a step, row by row."""

    following: TensorDictBase  # what TorchRL has at ``next``
    ended: np.ndarray  # whose episodes are over
    begun: np.ndarray  # which of these have begun the next episode already, as the pool resets in the same step
    firsts: Tree  # where they have, their first observations; elsewhere as in ``following``


class Batches:
    """Turns the batches of a pool into tensordicts, with a row per env, and actions into what the pool takes."""

    def __init__(self, pool: GymnasiumPool[Any], one_hot: bool) -> None:
        kind = _PlayerLayout if pool.num_players > 1 else _SingleLayout
        self._layout: _SingleLayout | _PlayerLayout = kind(pool, one_hot)
        # None: they are on the CPU, where TorchRL need not move anything.
        self.device = None if pool.device == "cpu" else torch.device(pool.device)
        self._tells_failures = pool.settings.on_error == "restart"
        if self._tells_failures:
            self._layout.observation_spec["abnormal"] = flags_spec(pool.num_envs, 1)
        self.action = self._layout.action
        self.group_map = self._layout.group_map

    def specs(self) -> tuple[Composite, Composite, Composite, Composite]:
        """The specs of observations, actions, rewards and flags, for all envs."""
        layout = self._layout
        specs = layout.observation_spec, layout.action_spec, layout.reward_spec, layout.done_spec
        seen, acts, rewards, flags = (one.to(self.device) if self.device else one for one in specs)
        return seen, acts, rewards, flags

    def first(self, observation: Tree, info: dict[str, Any]) -> TensorDictBase:
        """What a reset returns."""
        return self._tensordict(self._layout.first(observation, info), info)

    def following(self, batch: Any) -> Step:
        """What a step returns."""
        observation, reward, terminated, truncated, info = batch
        ended = terminated | truncated
        has_last = info.get("_final_obs")
        if has_last is None:
            last, begun = observation, np.zeros(len(ended), np.bool_)
        else:
            last = _last_observation(observation, has_last, info["final_obs"])
            begun = has_last & (info["elapsed_step"] == 0)  # not where that reset failed
        out = self._tensordict(self._layout.following(last, reward, terminated, truncated, info), info)
        # This waits for a GPU, as TorchRL does next: it asks whether any env is done.
        return Step(out, on_host(ended), on_host(begun), observation)

    def _tensordict(self, data: dict[str, Any], info: dict[str, Any]) -> TensorDictBase:
        rows = len(info["env_id"])
        if self._tells_failures:
            failed = info.get("abnormal")
            data["abnormal"] = torch.zeros(rows, 1, dtype=torch.bool)
            if failed is not None:
                data["abnormal"][:, 0] = torch.as_tensor(failed)
        return TensorDict(data, batch_size=(rows,), device=self.device)


def on_host(values: Any) -> np.ndarray:
    """Flags or infos as an array of numpy: infos are tensors where the pool is on a device."""
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def _last_observation(observation: Tree, has_last: Any, final: Any) -> Tree:
    """The observation in which each step ended: where ``has_last``, it is not the one that the batch shows."""
    if isinstance(has_last, torch.Tensor):  # of a pool on a device: ``final`` has the form of an observation
        return map_trees(functools.partial(_choose, has_last), final, observation)
    out = map_tree(torch.clone, observation)
    for row in has_last.nonzero()[0].tolist():
        map_trees(functools.partial(_put, row), out, final[row])
    return out


def _choose(mask: torch.Tensor, tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The rows of a tensor where the mask says so, elsewhere those of the other."""
    return torch.where(mask.reshape(-1, *[1] * (tensor.ndim - 1)), tensor, other)


def _put(row: int, tensor: torch.Tensor, part: Any) -> None:
    tensor[row] = torch.as_tensor(np.asarray(part))


class Seeds:
    """Each env gets its seed at its next reset: a reset in the middle of an episode would tear a transition apart."""

    def __init__(self, num_envs: int) -> None:
        self._waiting: list[int | None] = [None] * num_envs

    def set(self, seed: Any) -> None:
        """A seed for each env: env i has ``seed + i``; or a list with one per env. None: no env gets one."""
        count = len(self._waiting)
        self._waiting = [None] * count if seed is None else list(check_seeds(seed, range(count)))

    def take(self, env_ids: Iterable[int]) -> list[int | None] | None:
        """The seeds for a reset of these envs, which have then got them; None if there are none."""
        ids = list(env_ids)
        taken = [self._waiting[one] for one in ids]
        if all(one is None for one in taken):
            return None
        for one in ids:
            self._waiting[one] = None
        return taken


# ---- where the parts of a batch are: one player per env ------------------------------------------

_DONE_KEYS = ("done", "terminated", "truncated")


class _SingleLayout:
    """An observation, an action, a reward and flags per env."""

    group_map: dict[str, list[str]] | None = None

    def __init__(self, pool: GymnasiumPool[Any], one_hot: bool) -> None:
        count = pool.num_envs
        self._group = Group(pool.single_observation_space, pool.single_action_space, one_hot)
        self.observation_spec = self._group.observation_spec(count)
        self.action_spec = self._group.action_spec(count)
        self.reward_spec = Composite({"reward": Unbounded((count, 1), dtype=torch.float32)}, shape=(count,))
        self.done_spec = Composite({key: flags_spec(count, 1) for key in _DONE_KEYS}, shape=(count,))

    def first(self, observation: Tree, info: dict[str, Any]) -> dict[str, Any]:
        """What a reset returns."""
        return {**self._group.observation(observation), **_no_flags(len(info["env_id"]), 1)}

    def following(
        self, observation: Tree, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
    ) -> dict[str, Any]:
        """What is at ``next`` after a step."""
        return {
            **self._group.observation(observation),
            "reward": reward.unsqueeze(-1).to(torch.float32),
            **_ended_flags(terminated, truncated),
        }

    def action(self, tensordict: TensorDictBase) -> Tree:
        """The action that a policy wrote, as a pool takes it."""
        return self._group.action(tensordict.get("action"))


def _no_flags(*shape: int) -> dict[str, Any]:
    """The flags of envs, or players, that have just begun."""
    return {key: torch.zeros(shape, dtype=torch.bool) for key in _DONE_KEYS}


def _ended_flags(terminated: torch.Tensor, truncated: torch.Tensor) -> dict[str, Any]:
    """The flags of envs, or players, after a step."""
    terminated, truncated = terminated.unsqueeze(-1), truncated.unsqueeze(-1)
    return {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}


# ---- several players: nested, by group -----------------------------------------------------------

_ALL, _ONE = "agents", "agent"  # the group of players that are all of one kind, and one of them


class _PlayerLayout:
    """A group per kind of player, with a place for each player that may be there, and flags per env beside them.

    ``mask`` says whose places are taken. The others are zero, and done.
    """

    def __init__(self, pool: GymnasiumPool[Any], one_hot: bool) -> None:
        kinds = pool.player_kinds
        self._has_kinds = bool(kinds)
        self._num_envs = pool.num_envs
        of_each = kinds or (_ALL,) * pool.num_players
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
            flags[kind] = Composite({key: flags_spec(*shape, 1) for key in _DONE_KEYS}, shape=shape)
        own = {key: flags_spec(count, 1) for key in _DONE_KEYS}
        self.observation_spec = Composite(seen, shape=(count,))
        self.action_spec = Composite(acts, shape=(count,))
        self.reward_spec = Composite(rewards, shape=(count,))
        self.done_spec = Composite({**own, **flags}, shape=(count,))

    def first(self, observation: Tree, info: dict[str, Any]) -> dict[str, Any]:
        """What a reset returns."""
        out = _no_flags(len(info["env_id"]), 1)
        for kind, group, rows in self._rows(info):
            seen = map_tree(rows.arrange, group.observation(self._of_kind(observation, kind)))
            seen["mask"] = rows.arrange(rows.goes_on)
            out[kind] = TensorDict({**seen, **_no_flags(*rows.shape, 1)}, batch_size=rows.shape)
        return out

    def following(
        self, observation: Tree, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
    ) -> dict[str, Any]:
        """What is at ``next`` after a step."""
        out = _ended_flags(terminated, truncated)
        for kind, group, rows in self._rows(info):
            seen = map_tree(rows.arrange, group.observation(self._of_kind(observation, kind)))
            seen["mask"] = rows.arrange(rows.goes_on)
            seen["reward"] = rows.arrange(reward[rows.numbers].unsqueeze(-1).to(torch.float32))
            flags = _ended_flags(rows.arrange(rows.terminated, absent=True), rows.arrange(rows.truncated))
            out[kind] = TensorDict({**seen, **flags}, batch_size=rows.shape)
        return out

    def action(self, tensordict: TensorDictBase) -> Tree:
        """The actions that a policy wrote, as a pool takes them."""
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
