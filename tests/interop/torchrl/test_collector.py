"""``PoolCollector``: whole transitions from first-ready batches, in rows of consecutive steps of one env."""

from __future__ import annotations

import collections
import copy
from typing import Any

import numpy as np
import pytest
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torchrl.collectors import BaseCollector
from torchrl.envs.utils import ExplorationType, exploration_type
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import stepmill
from stepmill import errors
from stepmill.interop.torchrl import PoolCollector
from support.envs.adapted import Diary, length_of
from support.waiting import Gate, wait_at_gate

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL warns of many things

MODES = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])


def diary(mode: str = "next_step", num_envs: int = 4, batch_size: int = 2, **arguments: Any) -> Any:
    arguments = {"backend": "inline", **arguments}
    return stepmill.make(Diary, num_envs=num_envs, batch_size=batch_size, autoreset=mode, **arguments)


class Policy:
    """Acts at random, and writes which of its calls it was."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, tensordict: Any) -> Any:
        self.calls += 1
        rows = len(tensordict)
        assert not tensordict["done"].any()
        tensordict["call"] = torch.full((rows,), self.calls)
        return tensordict.set("action", torch.randint(4, (rows,)))


def check_whole(rows: Any, seen: dict[int, list[float]]) -> None:
    """Each row continues where the last one of its env ended, in ``seen``: env, episode and step."""
    for row in rows:
        for now, action, following, env_id in zip(
            row["observation"].tolist(), row["action"].tolist(), row["next"], row["env_index"].tolist(), strict=True
        ):
            then, done = following["observation"].tolist(), following["done"].item()
            assert now[:3] == seen.get(env_id, [env_id, 0, 0])
            assert then == [env_id, now[1], now[2] + 1, action]
            assert following["reward"].item() == 10 * env_id + then[2]
            assert done == (then[2] == length_of(env_id, int(now[1])))
            assert following["terminated"].item() == (done and now[1] % 2 == 0)
            seen[env_id] = [env_id, now[1] + 1, 0] if done else then[:3]


@MODES
@pytest.mark.parametrize(("num_envs", "batch_size"), [(4, 2), (3, 3), (5, 1)])
def test_every_transition_is_whole(mode: str, num_envs: int, batch_size: int) -> None:
    collector = PoolCollector(
        diary(mode, num_envs, batch_size), Policy(), frames_per_batch=6 * num_envs, total_frames=36 * num_envs
    )
    assert isinstance(collector, BaseCollector)
    assert len(collector) == 6
    seen: dict[int, list[float]] = {}
    for data in collector:
        assert data.shape == (num_envs, 6)
        assert torch.equal(data["env_index"], data["observation"][..., 0].long())
        check_whole(data, seen)
    assert seen.keys() == set(range(num_envs))
    assert collector.stats()["frames"] == 36 * num_envs
    collector.shutdown()
    assert collector.pool.closed


@MODES
def test_episodes_are_told_apart(mode: str) -> None:
    collector = PoolCollector(diary(mode), Policy(), frames_per_batch=24, total_frames=120)
    episodes: dict[int, set[tuple[int, int]]] = collections.defaultdict(set)
    for data in collector:
        numbers, told = data["collector", "traj_ids"].flatten(), data["observation"].flatten(0, 1)
        for number, (env_id, episode, *_) in zip(numbers.tolist(), told.tolist(), strict=True):
            episodes[number].add((env_id, episode))
        ends, last = data["next", "done"].squeeze(-1), data["next", "observation"]
        steps = last[..., 2]
        returns = (steps * (steps + 1) / 2 + 10 * last[..., 0] * steps) * ends
        assert torch.equal(data["collector", "episode_return"], returns)
    assert all(len(one) == 1 for one in episodes.values())
    assert len({next(iter(one)) for one in episodes.values()}) == len(episodes)
    collector.shutdown()


def test_what_the_policy_wrote_is_kept_as_it_was_sent() -> None:
    collector = PoolCollector(
        diary(), Policy(), frames_per_batch=40, total_frames=40, num_steps=10, policy_device="cpu"
    )
    (data,) = list(collector)
    assert (data["call"].diff() > 0).all()
    assert data["call"].max() <= collector.policy.calls
    assert data.shape == (4, 10)
    collector.shutdown()


@pytest.mark.usefixtures("server", "deadline")
def test_no_env_waits_for_a_slow_one(gate: Gate) -> None:
    folder = str(gate.folder)

    class Slow(Diary):
        def step(self, action: Any) -> Any:
            if self.env_id == 2 and self.episode == 0:
                wait_at_gate(folder, 2)
            return super().step(action)

    pool = stepmill.make(Slow, num_envs=3, batch_size=1, backend="process", num_workers=3)
    collector = PoolCollector(pool, Policy(), frames_per_batch=24, num_steps=4)
    batches = iter(collector)
    seen: dict[int, list[float]] = {}
    for _ in range(2):
        data = next(batches)
        assert set(data["env_index"].flatten().tolist()) <= {0, 1}
        check_whole(data, seen)
    for _ in range(length_of(2, 0)):
        gate.open(2)
    while 2 not in seen:
        check_whole(next(batches), seen)
    collector.shutdown()


def test_worker_processes() -> None:
    pool = diary("same_step", backend="process", num_workers=2)
    collector = PoolCollector(pool, Policy(), frames_per_batch=24, total_frames=96)
    seen: dict[int, list[float]] = {}
    for data in collector:
        check_whole(data, seen)
    collector.shutdown()


@MODES
def test_after_an_interrupt_all_envs_begin_anew(mode: str) -> None:
    class Interrupted(Policy):
        def __call__(self, tensordict: Any) -> Any:
            if self.calls == 20:
                self.calls += 1
                raise KeyboardInterrupt
            return super().__call__(tensordict)

    collector = PoolCollector(diary(mode), Interrupted(), frames_per_batch=24)
    with pytest.raises(KeyboardInterrupt):
        collections.deque(iter(collector), maxlen=0)
    data = next(batches := iter(collector))
    episodes = dict(zip(data["env_index"][:, 0].tolist(), data["observation"][:, 0, 1].tolist(), strict=True))
    seen = {env_id: [env_id, episode, 0] for env_id, episode in episodes.items()}
    check_whole(data, seen)
    check_whole(next(batches), seen)
    collector.shutdown()


def test_random_actions_and_one_hot_ones() -> None:
    for categorical in (True, False):
        collector = PoolCollector(diary(), frames_per_batch=8, total_frames=16, categorical_action_encoding=categorical)
        for data in collector:
            assert data["action"].shape == ((4, 2) if categorical else (4, 2, 4))
        collector.shutdown()


def test_seeds() -> None:
    def firsts(seed: int, reseed: int | None) -> Any:
        pool = stepmill.make("CartPole-v1", num_envs=3, batch_size=1, seed=seed)
        collector = PoolCollector(pool, frames_per_batch=30, total_frames=30)
        if reseed is not None:
            assert collector.set_seed(reseed) == reseed + 3
        (data,) = list(collector)
        collector.shutdown()
        return data[data["env_index"][:, 0].argsort()]["observation"][:, 0]

    assert torch.equal(firsts(5, None), firsts(0, 5))
    assert not torch.equal(firsts(5, None), firsts(0, None))


def test_what_torchrl_asks_of_a_collector() -> None:
    def actor() -> Any:
        return TensorDictModule(nn.Linear(4, 4), in_keys=["observation"], out_keys=["logits"])

    ours, other = actor(), actor()
    kinds = []

    def policy(tensordict: Any) -> Any:
        kinds.append(exploration_type())
        return tensordict.set("action", torch.zeros(len(tensordict), dtype=torch.int64))

    collector = PoolCollector(
        diary(), policy, frames_per_batch=8, exploration_type=ExplorationType.MODE, postproc=lambda data: data.flatten()
    )
    assert next(iter(collector)).shape == (8,)
    assert set(kinds) == {ExplorationType.MODE}
    with pytest.raises(errors.UsageError, match="expected a policy that is a module"):
        collector.update_policy_weights_(other)
    assert "Diary" in repr(collector)
    collector.policy = ours
    collector.update_policy_weights_()
    collector.update_policy_weights_(other)
    assert torch.equal(ours.module.weight, other.module.weight)
    state = copy.deepcopy(collector.state_dict())
    nn.init.zeros_(ours.module.weight)
    collector.load_state_dict(state)
    assert torch.equal(ours.module.weight, other.module.weight)
    collector.shutdown()


@pytest.mark.parametrize(("frames", "steps"), [(0, None), (10, 3), (8, 0), (9, None)])
def test_counts_that_do_not_fit(frames: int, steps: int | None) -> None:
    with diary() as pool, pytest.raises(errors.ConfigError, match=f"multiple of num_steps.*frames_per_batch={frames}"):
        PoolCollector(pool, frames_per_batch=frames, num_steps=steps)
    with pytest.raises(errors.ConfigError, match=r"PoolCollector: expected a pool of stepmill.make\("):
        PoolCollector("CartPole-v1", frames_per_batch=8)


def test_a_policy_with_a_hidden_state_is_refused() -> None:
    def policy(tensordict: Any) -> Any:
        tensordict["next", "hidden"] = torch.zeros(len(tensordict), 3)
        return tensordict.set("action", torch.zeros(len(tensordict), dtype=torch.int64))

    collector = PoolCollector(diary(), policy, frames_per_batch=8)
    with pytest.raises(errors.UnsupportedError, match=r"\['hidden'\] at 'next'.* use a sync pool, PoolEnv"):
        next(iter(collector))


def test_it_trains() -> None:
    """PPO learns to do what an env pays for."""

    class Pays(Diary):
        def step(self, action: Any) -> Any:
            obs, _, terminated, truncated, info = super().step(action)
            return obs / 10, float(action == 2), terminated, truncated, info

    torch.manual_seed(0)
    net = TensorDictModule(nn.Linear(4, 4), in_keys=["observation"], out_keys=["logits"])
    actor = ProbabilisticActor(
        net, in_keys=["logits"], distribution_class=torch.distributions.Categorical, return_log_prob=True
    )
    critic = ValueOperator(nn.Linear(4, 1), in_keys=["observation"])
    advantage, loss = GAE(gamma=0.9, lmbda=0.9, value_network=critic), ClipPPOLoss(actor, critic)
    optimizer = torch.optim.Adam(loss.parameters(), lr=0.03)
    pool = stepmill.make(Pays, num_envs=4, batch_size=2, backend="inline")
    collector = PoolCollector(pool, actor, frames_per_batch=64, total_frames=64 * 20)
    rewards = []
    for data in collector:
        rewards.append(data["next", "reward"].mean().item())
        advantage(data)
        for _ in range(4):
            losses = loss(data.flatten())
            optimizer.zero_grad()
            sum(losses[key] for key in ("loss_objective", "loss_critic", "loss_entropy")).backward()
            optimizer.step()
    assert np.mean(rewards[-3:]) > 2 * np.mean(rewards[:3])
    collector.shutdown()
