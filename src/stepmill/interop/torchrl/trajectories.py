"""The transitions of each env, in the order of its steps, whichever env is ready first."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

__all__ = ["Trajectories"]


class Trajectories:
    """One piece of ``num_steps`` consecutive transitions per env, being written."""

    def __init__(self, num_envs: int, num_steps: int) -> None:
        self._shape = num_envs, num_steps
        self._pieces: TensorDictBase | None = None
        self._has_next = False
        self._place = np.zeros(num_envs, np.int64)  # of the step that is under way, or comes next
        self._episode = np.zeros(num_envs, np.int64)
        self._episodes = 0  # how many have begun

    def begin(self, env_ids: np.ndarray, tensordict: TensorDictBase) -> None:
        """Observations and what the policy made of them, as they are at the moment."""
        tensordict.set("env_index", torch.as_tensor(env_ids, dtype=torch.int64))
        tensordict.set(("collector", "traj_ids"), torch.as_tensor(self._episode[env_ids]))
        if self._pieces is None:
            self._pieces = tensordict.new_zeros(*self._shape)
        self._write(self._pieces, env_ids, tensordict)

    def end(self, env_ids: np.ndarray, following: TensorDictBase, returns: Any) -> TensorDictBase | None:
        """What came back for the actions that were sent. Returns the pieces that are complete now, if any."""
        pieces = self._pieces
        if pieces is None or not len(env_ids):
            return None
        if not self._has_next:
            self._has_next = True
            pieces.set("next", following.new_zeros(*self._shape))
            pieces.set(("collector", "episode_return"), torch.zeros(self._shape))
        self._write(pieces.get("next"), env_ids, following)
        where = torch.as_tensor(env_ids), torch.as_tensor(self._place[env_ids])
        told = pieces.get(("collector", "episode_return"))
        told[where] = torch.as_tensor(returns, dtype=told.dtype, device=told.device)
        self._place[env_ids] += 1
        full = env_ids[self._place[env_ids] == self._shape[1]]
        self._place[full] = 0
        return pieces[torch.as_tensor(full)] if len(full) else None  # a copy

    def drop_unfinished(self) -> None:
        """All envs begin a new piece."""
        self._place[:] = 0

    def begin_episodes(self, env_ids: np.ndarray) -> None:
        """The next steps of these envs belong to new episodes."""
        self._episode[env_ids] = np.arange(self._episodes, self._episodes + len(env_ids))
        self._episodes += len(env_ids)

    def _write(self, target: TensorDictBase, env_ids: np.ndarray, rows: TensorDictBase) -> None:
        where = torch.as_tensor(env_ids), torch.as_tensor(self._place[env_ids])
        for key, value in rows.items(True, True):
            target.get(key)[where] = value
