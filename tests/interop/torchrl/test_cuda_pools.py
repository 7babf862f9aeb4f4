"""Pools of ``backend="cuda"`` in TorchRL, where the host is the GPU: the transitions of pools on threads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torchrl.collectors import Collector
from torchrl.envs.utils import check_env_specs

import stepmill
from stepmill import errors
from stepmill.interop.torchrl import PoolCollector, PoolEnv, make_env
from stepmill.views.pool import PoolView
from support.cuda_pools import HostGpu
from support.host_kernels import Kernels
from support.own_env import own_env

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("gpu")]  # TorchRL warns of many things

MODES = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
N = 5


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory, one_cache: None) -> Iterator[None]:
    """A GPU for ``backend="cuda"``. Its tensors are on the CPU, where pools have to say that they are."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    with pytest.MonkeyPatch.context() as patch:
        HostGpu(Kernels(tmp_path_factory.mktemp("kernels"))).install(patch)
        patch.setattr(PoolView, "device", "cpu")
        yield


def settings(backend: str, mode: str, **arguments: Any) -> Any:
    return {"num_envs": N, "seed": 3, "backend": backend, "autoreset": mode, "output": "torch", **arguments}


def assert_same(ours: Any, theirs: Any) -> None:
    assert set(ours.keys(True, True)) == set(theirs.keys(True, True))
    for key in theirs.keys(True, True):
        torch.testing.assert_close(ours[key], theirs[key], msg=lambda text, key=key: f"{key}: {text}")


# Episodes end all at once (Taxi), for some envs (Blackjack, whose observations are tuples, and FrozenLake), or within
# a last bit of those on threads (Moving, whose actions are tuples).
TASKS = pytest.mark.parametrize(
    ("task", "most_steps"), [("Taxi-v3", 4), ("Blackjack-v1", None), ("FrozenLake-v1", 9), ("Moving-v0", 7)]
)


@MODES
@TASKS
def test_rollouts_are_those_of_threads(task: str, most_steps: int | None, mode: str) -> None:
    rollouts: Any = []
    for backend in ("cuda", "thread"):
        env = make_env(task, max_episode_steps=most_steps, **settings(backend, mode))
        torch.manual_seed(0)
        first = env.rollout(40, break_when_any_done=False)
        env.set_seed(11)
        rollouts.append((first, env.rollout(20, break_when_any_done=False), env.rollout(20)))
        env.close()
    for ours, theirs in zip(*rollouts, strict=True):
        assert_same(ours, theirs)
    assert rollouts[0][0]["next", "done"].sum(0).max() > 1, "several ends in one batch"


@MODES
@TASKS
def test_batches_are_those_of_threads(task: str, most_steps: int | None, mode: str) -> None:
    batches: Any = []
    for backend in ("cuda", "thread"):
        arguments = settings(backend, mode, max_episode_steps=most_steps)
        collectors = [
            Collector(make_env(task, **arguments), frames_per_batch=12 * N, total_frames=36 * N),
            PoolCollector(stepmill.make(task, **arguments), frames_per_batch=12 * N, total_frames=36 * N),
        ]
        torch.manual_seed(0)
        batches.append([batch for collector in collectors for batch in collector])
        for collector in collectors:
            collector.shutdown()
    for ours, theirs in zip(*batches, strict=True):
        assert_same(ours, theirs)


@MODES
def test_some_envs_are_reset_or_stepped_in_the_middle(mode: str) -> None:
    seen: Any = []
    for backend in ("cuda", "thread"):
        env = make_env("Taxi-v3", max_episode_steps=3, categorical_action_encoding=False, **settings(backend, mode))
        check_env_specs(env, seed=5)
        torch.manual_seed(0)
        now = env.reset(seed=4)
        some = torch.arange(N) % 2 == 0
        seen.append([now, env.step(env.rand_action(now.set("_step", some)))])
        now = env.reset(seen[-1][1]["next"].exclude("reward").set("_reset", some.unsqueeze(-1)))
        for _ in range(5):
            data, now = env.step_and_maybe_reset(env.rand_action(now))
            seen[-1] += [data, now]
        env.close()
    for ours, theirs in zip(*seen, strict=True):
        assert_same(ours, theirs)


@MODES
def test_an_env_whose_episode_is_over_is_not_stepped(mode: str) -> None:
    env = make_env("Taxi-v3", max_episode_steps=3, **settings("cuda", mode))
    last = env.rollout(9)[:, -1]
    with pytest.raises(errors.NeedsResetError, match=r"envs \[0, 1, 2, 3, 4\] have ended"):
        env.step(env.rand_action(last["next"].exclude("reward")))
    env.close()


def test_actions_outside_their_space_are_told_by_the_pool() -> None:
    env = make_env("Taxi-v3", **settings("cuda", "next_step"))
    env.step(env.reset().set("action", torch.tensor([0, 1, 7, 2, 3])))
    with pytest.raises(errors.ActionError, match="env 2 was given an action outside"):
        env.pool.check()
    env.close()


@MODES
def test_a_reset_that_fails_raises(mode: str, tmp_path: Path) -> None:
    """Here ``reset`` and ``recv`` cannot raise themselves."""
    task = own_env(
        tmp_path / "fails.h",
        reset='if (++resets_ == 3) throw std::runtime_error("no reset"); x_ = 0.0;',
        step="x_ += 1.0; return {1.0, x_ == 2.0, false};",
        members="int resets_ = 0;",
    )
    for collect in (
        lambda pool: PoolEnv(pool).rollout(9, break_when_any_done=False),
        lambda pool: list(PoolCollector(pool, frames_per_batch=9 * N, total_frames=9 * N)),
    ):
        pool = stepmill.make(task, **settings("cuda", mode))
        with pytest.raises(errors.EnvError, match="env 0"):
            collect(pool)
        pool.close()


@pytest.mark.parametrize("user", [PoolEnv, lambda pool: PoolCollector(pool, frames_per_batch=N)])
def test_other_arrays_than_tensors_are_refused(user: Any) -> None:
    pool = stepmill.make("Taxi-v3", **settings("cuda", "next_step", output="numpy"))
    with pool, pytest.raises(errors.UnsupportedError, match="make it with output='torch'"):
        user(pool)
