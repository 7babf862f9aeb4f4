"""Pools as envs of TorchRL: its rollouts, collectors, transforms and objectives take a ``PoolEnv``.

``make_env`` makes a pool and its env in one call. ``PoolCollector`` collects from async pools: it acts for those envs
that are ready first, and yields complete transitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepmill.errors import ConfigError, EnvError, NeedsResetError
from stepmill.make import make_gymnasium
from stepmill.system.optional import TORCHRL, require
from stepmill.values.trees import Tree
from stepmill.views.gymnasium import GymnasiumPool

require(*TORCHRL, "stepmill.interop.torchrl")

import torch  # noqa: E402
from tensordict import TensorDictBase  # noqa: E402
from torchrl.envs import EnvBase  # noqa: E402

from stepmill.interop.torchrl.batches import Batches, Seeds, Step, on_host, tensor_pool  # noqa: E402
from stepmill.interop.torchrl.collector import PoolCollector  # noqa: E402

__all__ = ["PoolCollector", "PoolEnv", "make_env"]


def make_env(task_id: Any, *, categorical_action_encoding: bool = True, **arguments: Any) -> PoolEnv:
    """``PoolEnv(stepmill.make(task_id, ...))``."""
    pool = make_gymnasium(task_id, **{"output": "torch", **arguments})
    return PoolEnv(pool, categorical_action_encoding=categorical_action_encoding)


class PoolEnv(EnvBase):  # type: ignore[misc]
    """A pool as a batched env of TorchRL, whose ``batch_size`` is ``[num_envs]``.

    Every step is a whole transition, in every autoreset mode: ``next`` has the last observation of an episode that
    ends, and TorchRL resets the env before its next action. Where the pool has reset it in the same step, that reset
    returns what is there already. So the pool never takes an action for a reset, and no action is lost.

    Rewards are float32. Envs with several players have a group of keys for each kind of player.

    With ``on_error="restart"`` there is a key ``abnormal``: such a step is truncated, because the env failed in it.

    Args:
        pool: What ``stepmill.make`` returns, in sync mode. It belongs to the env, which closes it. The env's tensors
            are on the pool's device.
        categorical_action_encoding: Whether discrete actions are numbers; otherwise they are one-hot, as in TorchRL's
            ``GymEnv`` by default.
    """

    def __init__(self, pool: GymnasiumPool[Any], *, categorical_action_encoding: bool = True) -> None:
        own = tensor_pool(pool, "PoolEnv")
        if own.is_async:
            raise ConfigError(
                f"PoolEnv: TorchRL's envs step all at once, but the pool has batch_size={own.batch_size} of num_envs="
                f"{own.num_envs}: leave out batch_size in make(...), or collect with PoolCollector(pool, policy)"
            )
        batches = Batches(own, not categorical_action_encoding)
        super().__init__(device=batches.device, batch_size=torch.Size([own.num_envs]))
        self.pool, self._batches = own, batches
        self.group_map = batches.group_map
        self.observation_spec, self.full_action_spec, self.full_reward_spec, self.full_done_spec = batches.specs()
        # The envs that TorchRL has to reset before they are stepped. None has begun.
        self._over = np.ones(own.num_envs, np.bool_)
        # Those of them that the pool has reset already, and a batch with their first observations.
        self._begun, self._firsts = np.zeros(own.num_envs, np.bool_), None
        self._seeds = Seeds(own.num_envs)
        self.is_closed = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pool})"

    # ---- stepping ----------------------------------------------------------------------------

    def _step(self, tensordict: TensorDictBase) -> TensorDictBase:
        chosen = tensordict.get("_step", None)
        if chosen is None:
            return self._play(tensordict, None)
        mask = chosen.reshape(self.batch_size)
        out = self._skip_tensordict(tensordict.exclude("_step"))
        out[mask] = self._play(tensordict[mask], on_host(mask).nonzero()[0])
        return out

    def _play(self, tensordict: TensorDictBase, env_ids: np.ndarray | None) -> TensorDictBase:
        """Steps all envs, or some, and returns their rows."""
        over = self._over if env_ids is None else self._over[env_ids]
        if over.any():
            ids = over.nonzero()[0] if env_ids is None else env_ids[over]
            raise NeedsResetError(
                f"PoolEnv: expected envs whose episodes go on, but those of envs {ids.tolist()} have ended, or have "
                "not begun: call reset(), and step_and_maybe_reset() in place of step()"
            )
        try:
            batch = self.pool.step(self._batches.action(tensordict), env_ids)
        except EnvError as error:
            if error.batch is not None:
                error.batch = self._note(self._batches.following(error.batch), env_ids).following
            raise
        return self._note(self._batches.following(batch), env_ids).following

    def _note(self, step: Step, env_ids: np.ndarray | None) -> Step:
        """Remembers which envs have to be reset."""
        if step.ended.any():
            self._over[slice(None) if env_ids is None else env_ids] = step.ended
            if env_ids is None:  # otherwise their next episodes are begun once more: this happens in few rollouts
                self._begun, self._firsts = step.begun, step.firsts
        return step

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDictBase:
        """Resets all envs, or those of ``_reset``; takes ``seed`` and ``options`` as a pool does."""
        chosen = None if tensordict is None else tensordict.get("_reset", None)
        mask = np.ones(self.pool.num_envs, np.bool_) if chosen is None else on_host(chosen.reshape(self.batch_size))
        if not mask.any():
            return self.observation_spec.zero().update(self.full_done_spec.zero())  # TorchRL takes none of its rows
        if chosen is None:
            self.pool.drain()  # of a step that was interrupted
        to_reset = mask if chosen is None or kwargs else mask & ~self._begun
        if to_reset.any():
            observation, info = self._reset_pool(to_reset.nonzero()[0], **kwargs)
        else:
            observation, info = self._firsts, {"env_id": self.pool.all_env_ids}
        self._over &= ~mask
        self._begun &= ~mask
        if not self._begun.any():
            self._firsts = None
        return self._batches.first(observation, info)

    def _reset_pool(self, env_ids: np.ndarray, *, seed: Any = None, options: Any = None) -> tuple[Tree, dict[str, Any]]:
        """Resets envs. Returns a row for every env: the observation in which it is now."""
        mask = np.zeros(self.pool.num_envs, np.bool_)
        mask[env_ids] = True
        waiting = self._seeds.take(env_ids.tolist())
        if seed is None and waiting is not None:
            seed = [waiting.pop(0) if chosen else None for chosen in mask]
        while True:
            observation, info = self.pool.reset(seed=seed, options={**(options or {}), "reset_mask": mask})
            mask = mask & on_host(info.get("abnormal", False))
            if not mask.any():
                return observation, info
            self.pool.check()  # raises if a reset has failed on a GPU, where reset() cannot tell
            seed = None  # those whose reset failed try it again, until the pool raises after max_restarts

    # ---- the rest ----------------------------------------------------------------------------

    def _set_seed(self, seed: int | Sequence[int] | None) -> None:
        self._seeds.set(seed)

    def to(self, device: Any) -> PoolEnv:
        """Moves the tensors of all later steps to a device. With ``make(..., device="cuda")`` no step waits for it."""
        super().to(device)
        self._batches.device = self.device
        return self

    def close(self, **kwargs: Any) -> None:
        """Closes the pool."""
        super().close(**kwargs)
        self.pool.close()
