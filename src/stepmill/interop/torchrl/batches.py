"""A pool's batches as tensordicts."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torchrl.data import Composite

from stepmill.errors import ConfigError
from stepmill.interop.torchrl.layout import Layout, SingleLayout
from stepmill.interop.torchrl.players import PlayerLayout
from stepmill.interop.torchrl.specs import flags_spec
from stepmill.values.trees import Tree, map_tree, map_trees
from stepmill.views.gymnasium import GymnasiumPool
from stepmill.views.pool import PoolView

__all__ = ["Batches", "Step", "tensor_pool"]


def tensor_pool(given: Any, user: str) -> GymnasiumPool[Any]:
    """The pool, with tensors as its output whatever it had before."""
    if not isinstance(given, GymnasiumPool):
        got = "a pool of another view" if isinstance(given, PoolView) else repr(given)
        raise ConfigError(f"{user}: expected a pool of stepmill.make(..., env_type='gymnasium'), got {got}")
    if given._settings.output == "torch":
        return given
    return GymnasiumPool(given._engine, given._pool_spec, replace(given._settings, output="torch"))


class Step(NamedTuple):
    """A batch after a step, row by row."""

    following: TensorDictBase  # what TorchRL has at ``next``
    ended: np.ndarray  # whose episodes are over
    begun: np.ndarray  # which of these have begun the next episode already, as the pool resets in the same step
    firsts: Tree  # where they have, their first observations; elsewhere as in ``following``


class Batches:
    """Turns the batches of a pool into tensordicts, with a row per env, and actions into what the pool takes."""

    def __init__(self, pool: GymnasiumPool[Any], one_hot: bool) -> None:
        self._layout: Layout = (PlayerLayout if pool._host.num_players > 1 else SingleLayout)(pool, one_hot)
        self.device = _device(pool)
        self._tells_failures = pool._settings.on_error == "restart"
        if self._tells_failures:
            self._layout.observation_spec["abnormal"] = flags_spec(pool.num_envs, 1)
        self.action = self._layout.action
        self.group_map: dict[str, list[str]] | None = getattr(self._layout, "group_map", None)

    def specs(self) -> tuple[Composite, Composite, Composite, Composite]:
        """Of observations, actions, rewards and flags, for all envs."""
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
        ended = (terminated | truncated).cpu().numpy()
        last, begun = _last_observation(observation, ended, info)
        out = self._layout.following(last, reward, terminated, truncated, info)
        return Step(self._tensordict(out, info), ended, begun, observation)

    def _tensordict(self, data: dict[str, Any], info: dict[str, Any]) -> TensorDictBase:
        rows = len(info["env_id"])
        if self._tells_failures:
            failed = info.get("abnormal")
            data["abnormal"] = torch.zeros(rows, 1, dtype=torch.bool)
            if failed is not None:
                data["abnormal"][:, 0] = torch.as_tensor(failed)
        return TensorDict(data, batch_size=(rows,), device=self.device)


def _device(pool: GymnasiumPool[Any]) -> torch.device | None:
    """The GPU that a pool's tensors are on. None: they are on the CPU, where TorchRL need not move anything."""
    gpu = None if pool._output is None else pool._output.reader
    return None if gpu is None else torch.device("cuda", gpu)


def _last_observation(observation: Tree, ended: np.ndarray, info: dict[str, Any]) -> tuple[Tree, np.ndarray]:
    """The observation in which each step ended, and which rows show the first one of the next episode instead."""
    has_last = info.get("_final_obs")
    if has_last is None:
        return observation, np.zeros_like(ended)
    out = map_tree(torch.clone, observation)
    for row in has_last.nonzero()[0].tolist():
        map_trees(functools.partial(_put, row), out, info["final_obs"][row])
    return out, has_last & (info["elapsed_step"] == 0)  # where that reset failed, the row shows the last one as well


def _put(row: int, tensor: torch.Tensor, part: Any) -> None:
    tensor[row] = torch.as_tensor(np.asarray(part))
