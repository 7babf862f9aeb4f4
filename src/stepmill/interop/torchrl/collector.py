"""``PoolCollector``: acts for those envs of a pool that are ready first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import nn
from torchrl.collectors import BaseCollector
from torchrl.envs.utils import ExplorationType, set_exploration_type

from stepmill.errors import ConfigError, UnsupportedError, UsageError
from stepmill.interop.torchrl.batches import Batches, Seeds, on_host, tensor_pool
from stepmill.views.gymnasium import GymnasiumPool

Policy = Callable[[TensorDictBase], TensorDictBase]


class PoolCollector(BaseCollector):  # type: ignore[misc]
    """A collector for async pools (``batch_size < num_envs``): no env waits for the slowest one.

    Yields tensordicts of shape ``[frames_per_batch // num_steps, num_steps]``. Each row has ``num_steps`` consecutive,
    complete transitions of one env, which ``env_index`` names; ``("collector", "traj_ids")`` tells its episodes apart.
    The next piece of that env continues where this one ends. A fast env has more rows than a slow one, but no kind of
    episode is seen more often than it happens.

    What the policy writes (log-probabilities, values) is kept as it was when the action was sent. While you learn from
    a batch, the envs go on with the actions that they have: off-policy by a few steps, which PPO's ratio corrects.

    Args:
        pool: What ``stepmill.make`` returns. It belongs to the collector, which closes it.
        policy: Reads a tensordict with a row for each env that is ready, and writes ``action``. By default random.
        frames_per_batch: How many transitions to yield at once.
        total_frames: How many to yield altogether; -1: without end.
        num_steps: How many transitions of an env stand in a row; by default ``frames_per_batch // num_envs``.
        categorical_action_encoding: Whether discrete actions are numbers, or one-hot.
        policy_device: Where the policy computes, if not where the pool's tensors are.
        exploration_type: How the policy acts, as in TorchRL's collectors.
        postproc: Called with each batch; what it returns is yielded.
    """

    def __init__(
        self,
        pool: GymnasiumPool[Any],
        policy: Policy | None = None,
        *,
        frames_per_batch: int,
        total_frames: int = -1,
        num_steps: int | None = None,
        categorical_action_encoding: bool = True,
        policy_device: Any = None,
        exploration_type: ExplorationType = ExplorationType.RANDOM,
        postproc: Callable[[TensorDictBase], TensorDictBase] | None = None,
    ) -> None:
        super().__init__()
        self.pool = tensor_pool(pool, "PoolCollector")
        steps = max(1, frames_per_batch // pool.num_envs) if num_steps is None else num_steps
        if frames_per_batch < 1 or steps < 1 or frames_per_batch % steps:
            raise ConfigError(
                f"PoolCollector: expected frames_per_batch to be a multiple of num_steps, both positive, got "
                f"frames_per_batch={frames_per_batch}, num_steps={steps} (by default frames_per_batch // num_envs)"
            )
        self.policy = policy
        self.frames_per_batch = self.requested_frames_per_batch = frames_per_batch
        self.total_frames = total_frames
        self.exploration_type = exploration_type
        self._policy_device = policy_device
        self._postproc = postproc
        self._batches = Batches(self.pool, not categorical_action_encoding)
        self._trajectories = _Trajectories(pool.num_envs, steps)
        self._rows_per_batch = frames_per_batch // steps
        self._full: list[TensorDictBase] = []
        self._resetting = np.ones(pool.num_envs, np.bool_)
        self._seeds = Seeds(pool.num_envs)
        self._is_under_way = False
        self._frames, self._iter = 0, -1

    @property
    def action_spec(self) -> Any:
        """The spec of the actions of one env."""
        return self._batches.specs()[1][0]

    def iterator(self) -> Iterator[TensorDictBase]:
        """Yields batches until ``total_frames`` are reached."""
        while self.total_frames < 0 or self._frames < self.total_frames:
            batch = self._collect()
            self._frames, self._iter = self._frames + self.frames_per_batch, self._iter + 1
            yield batch if self._postproc is None else self._postproc(batch)

    def _collect(self) -> TensorDictBase:
        with torch.no_grad(), set_exploration_type(self.exploration_type):
            if not self._is_under_way:
                self._start()
            self._is_under_way = False  # if this is interrupted, nobody knows which actions were sent
            while sum(map(len, self._full)) < self._rows_per_batch:
                self._take_turn()
            self._is_under_way = True
        rows = torch.cat(self._full)
        self._full = [rows[self._rows_per_batch :]]
        return rows[: self._rows_per_batch]

    def _start(self) -> None:
        """Resets all envs. What is under way, of a batch that was interrupted, is dropped."""
        self.pool.drain()
        self._trajectories.drop_unfinished()
        self._reset(self.pool.all_env_ids)

    def _take_turn(self) -> None:
        """Receives a batch, keeps its transitions, and sends the next actions and resets."""
        batch = self.pool.recv()
        info = batch[-1]
        env_ids = on_host(info["env_id"])
        step = self._batches.following(batch)
        answers = ~self._resetting[env_ids]  # the others have been reset: no action came before
        returns = on_host(info.get("episode_return", np.zeros(len(env_ids))))
        full = self._trajectories.end(env_ids[answers], _rows(step.following, answers), returns[answers])
        if full is not None:
            self._full.append(full)
        self._resetting[env_ids] = False

        over = step.ended & ~step.begun
        if (over & ~answers).any():
            self.pool.check()  # raises if a reset has failed on a GPU, where recv() cannot tell
        if over.any():
            self._reset(env_ids[over])
        if step.begun.any():
            self._trajectories.begin_episodes(env_ids[step.begun])
        if not over.all():
            self._act(env_ids[~over], _rows(self._batches.first(step.firsts, info), ~over))

    def _reset(self, env_ids: np.ndarray) -> None:
        self._trajectories.begin_episodes(env_ids)
        self._resetting[env_ids] = True
        self.pool.async_reset(env_ids, seed=self._seeds.take(env_ids.tolist()))

    def _act(self, env_ids: np.ndarray, tensordict: TensorDictBase) -> None:
        if self.policy is None:
            tensordict.update(self.action_spec.rand((len(env_ids),)))
        elif self._policy_device is None:
            tensordict.update(self.policy(tensordict))
        else:
            written = self.policy(tensordict.to(self._policy_device))
            tensordict.update(written.to(self._batches.device or "cpu"))
        if "next" in tensordict.keys():  # noqa: SIM118  # tensordicts are not dicts
            raise UnsupportedError(
                f"PoolCollector: the policy has written {sorted(tensordict['next'].keys())} at 'next', a hidden state "
                "perhaps, which PoolCollector does not keep: use a sync pool, PoolEnv and TorchRL's Collector"
            )
        self._trajectories.begin(env_ids, tensordict)
        self.pool.send(self._batches.action(tensordict), env_ids)

    # ---- what TorchRL asks of collectors -----------------------------------------------------

    def set_seed(self, seed: int, static_seed: bool = False) -> int:
        """Each env has its seed from its next reset on: env i ``seed + i``. Returns a seed for further envs."""
        self._seeds.set(seed)
        return seed if static_seed else seed + self.pool.num_envs

    def update_policy_weights_(self, policy_or_weights: Any = None, **kwargs: Any) -> None:
        """Copies weights into the policy. Without arguments nothing: the policy is the one that you train."""
        if policy_or_weights is None:
            return
        if not isinstance(self.policy, nn.Module):
            raise UsageError(f"update_policy_weights_: expected a policy that is a module, got {self.policy!r}")
        if isinstance(policy_or_weights, nn.Module):
            policy_or_weights = TensorDict.from_module(policy_or_weights)
        TensorDict.from_module(self.policy).data.update_(policy_or_weights.data)

    def state_dict(self) -> OrderedDict[str, Any]:
        """The policy's weights and the counts; not the envs."""
        policy = self.policy.state_dict() if isinstance(self.policy, nn.Module) else OrderedDict()
        return OrderedDict(policy_state_dict=policy, frames=self._frames, iter=self._iter)

    def load_state_dict(self, state_dict: OrderedDict[str, Any]) -> None:
        """What ``state_dict`` returned."""
        if isinstance(self.policy, nn.Module):
            self.policy.load_state_dict(state_dict["policy_state_dict"])
        self._frames, self._iter = state_dict["frames"], state_dict["iter"]

    def shutdown(self, timeout: float | None = None, close_env: bool = True, raise_on_error: bool = True) -> None:
        """Closes the pool."""
        if close_env:
            self.pool.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pool})"


def _rows(tensordict: TensorDictBase, mask: np.ndarray) -> TensorDictBase:
    return tensordict if mask.all() else tensordict[torch.as_tensor(mask)]


class _Trajectories:
    """The transitions of each env, in the order of its steps: a piece of ``num_steps`` per env is being written."""

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
