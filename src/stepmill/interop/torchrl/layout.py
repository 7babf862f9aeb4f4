"""Where the parts of a pool's batches are in tensordicts, if every env has one player."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from tensordict import TensorDictBase
from torchrl.data import Composite, Unbounded

from stepmill.interop.torchrl.group import Group
from stepmill.interop.torchrl.specs import flags_spec
from stepmill.values.trees import Tree
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["DONE_KEYS", "Layout", "SingleLayout", "ended_flags", "no_flags"]

DONE_KEYS = ("done", "terminated", "truncated")


class Layout(Protocol):
    """How a batch becomes tensordicts, with a row per env, and how an action comes out of one."""

    observation_spec: Composite
    action_spec: Composite
    reward_spec: Composite
    done_spec: Composite

    def first(self, observation: Tree, info: dict[str, Any]) -> dict[str, Any]:
        """What a reset returns."""
        ...

    def following(
        self, observation: Tree, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
    ) -> dict[str, Any]:
        """What is at ``next`` after a step."""
        ...

    def action(self, tensordict: TensorDictBase) -> Tree:
        """The action that a policy wrote, as a pool takes it."""
        ...


class SingleLayout:
    """An observation, an action, a reward and flags per env."""

    def __init__(self, pool: GymnasiumPool[Any], one_hot: bool) -> None:
        count = pool.num_envs
        self._group = Group(pool.single_observation_space, pool.single_action_space, one_hot)
        self.observation_spec = self._group.observation_spec(count)
        self.action_spec = self._group.action_spec(count)
        self.reward_spec = Composite({"reward": Unbounded((count, 1), dtype=torch.float32)}, shape=(count,))
        self.done_spec = Composite({key: flags_spec(count, 1) for key in DONE_KEYS}, shape=(count,))

    def first(self, observation: Tree, info: dict[str, Any]) -> dict[str, Any]:
        return {**self._group.observation(observation), **no_flags(len(info["env_id"]), 1)}

    def following(
        self, observation: Tree, reward: Any, terminated: Any, truncated: Any, info: dict[str, Any]
    ) -> dict[str, Any]:
        return {
            **self._group.observation(observation),
            "reward": reward.unsqueeze(-1).to(torch.float32),
            **ended_flags(terminated, truncated),
        }

    def action(self, tensordict: TensorDictBase) -> Tree:
        return self._group.action(tensordict.get("action"))


def no_flags(*shape: int) -> dict[str, Any]:
    """The flags of envs, or players, that have just begun."""
    return {key: torch.zeros(shape, dtype=torch.bool) for key in DONE_KEYS}


def ended_flags(terminated: torch.Tensor, truncated: torch.Tensor) -> dict[str, Any]:
    """The flags of envs, or players, after a step."""
    terminated, truncated = terminated.unsqueeze(-1), truncated.unsqueeze(-1)
    return {"done": terminated | truncated, "terminated": terminated, "truncated": truncated}
