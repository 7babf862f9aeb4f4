"""Pools with ``device="cuda"`` in TorchRL, on a real GPU: `make test-cuda`."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torchrl.collectors import Collector
from torchrl.envs.utils import check_env_specs

import stepmill
from stepmill.interop.torchrl import PoolCollector, make_env
from support.envs.adapted import Chase, Diary

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # TorchRL warns of many things
    pytest.mark.skipif(
        not torch.cuda.is_available() and not os.environ.get("STEPMILL_CUDA"), reason="no GPU: make test-cuda"
    ),
]


def act(tensordict: Any) -> Any:
    return tensordict.set("action", tensordict["observation"][..., 2].long() % 4)


def same(ours: Any, theirs: Any) -> None:
    assert ours.device.type == "cuda"
    for key in theirs.keys(True, True):
        assert ours[key].is_cuda, key
        assert torch.equal(ours[key].cpu(), theirs[key]), key


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_an_env_on_cuda(mode: str) -> None:
    rollouts = []
    for device in ("cuda", "cpu"):
        env = make_env(Diary, num_envs=3, backend="inline", autoreset=mode, on_error="restart", device=device)
        check_env_specs(env)
        rollouts.append(env.rollout(20, act, break_when_any_done=False))
        rollouts[-1] = rollouts[-1], env.rollout(9, act, break_when_any_done=False, break_when_all_done=True)
        env.close()
    for ours, theirs in zip(*rollouts, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_collectors_on_cuda(mode: str) -> None:
    batches = []
    for device in ("cuda", "cpu"):
        settings: Any = {"num_envs": 3, "backend": "inline", "autoreset": mode, "output": "torch", "device": device}
        sync = Collector(make_env(Diary, **settings), act, frames_per_batch=30, total_frames=60)
        first_ready = PoolCollector(
            stepmill.make(Diary, batch_size=2, **settings), act, frames_per_batch=30, total_frames=60
        )
        batches.append([*sync, *first_ready])
        sync.shutdown()
        first_ready.shutdown()
    for ours, theirs in zip(*batches, strict=True):
        same(ours.to("cuda"), theirs)


def test_players_on_cuda() -> None:
    env = make_env(Chase, num_envs=2, backend="inline", device="cuda")
    check_env_specs(env)
    data = env.rollout(12, break_when_any_done=False)
    assert data["mouse", "observation"].is_cuda
    assert data["next", "mouse", "mask"].sum() < data["next", "mouse", "mask"].numel()
    env.close()
