"""Envs with several players: a group of keys for each kind of player, a place for each player in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from gymnasium import spaces
from torchrl.collectors import Collector
from torchrl.envs.utils import check_env_specs

import stepmill
from stepmill.errors import SpaceError
from stepmill.interop.torchrl import PoolCollector, PoolEnv, make_env
from support.envs.adapted import Chase

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL warns of many things

MODES = pytest.mark.parametrize("mode", ["next_step", "disabled"])  # a pool of players has no other


def check_chase(data: Any) -> None:
    """``data`` has whole episodes of five steps, one after the other."""
    mice, cat, steps = data["mouse"], data["cat"], data.shape[-1]
    at = (torch.arange(steps) % 5).expand(data.shape).float()
    is_second = torch.tensor([0.0, 1.0]).bool()
    there = ~is_second | (at.unsqueeze(-1) < 2)  # the second mouse acts twice
    assert torch.equal(mice["mask"], there)
    assert torch.equal(mice["observation"][..., 0][there], at.unsqueeze(-1).expand(there.shape)[there])
    assert torch.equal(cat["at"][..., 0, 0], at)
    assert torch.equal(cat["mood"][..., 0], at.long() % 3)
    following = data["next", "mouse"]
    assert torch.equal(following["reward"].squeeze(-1), (at.unsqueeze(-1) + 1) * there)
    assert torch.equal(following["observation"][..., 1], (mice["action"] * there).float()), "each player's own action"
    assert torch.equal(data["next", "cat", "at"][..., 1], cat["action"].squeeze(-1))
    left = (at.unsqueeze(-1) == 4) | (is_second & (at.unsqueeze(-1) >= 1))
    assert torch.equal(following["done"].squeeze(-1), left)
    assert torch.equal(following["terminated"], following["done"])
    assert torch.equal(following["mask"], ~left)
    assert not following["truncated"].any()
    assert torch.equal(data["next", "done"].squeeze(-1), at == 4)


@MODES
def test_kinds_of_players_are_groups(mode: str) -> None:
    env = make_env(Chase, num_envs=2, backend="inline", autoreset=mode)
    check_env_specs(env)
    assert env.group_map == {"cat": ["cat_0"], "mouse": ["mouse_0", "mouse_1"]}
    assert env.action_keys == [("cat", "action"), ("mouse", "action")]
    assert env.reward_keys == [("cat", "reward"), ("mouse", "reward")]
    data = env.rollout(14, break_when_any_done=False)
    assert data["mouse"].batch_size == (2, 14, 2)
    check_chase(data)
    env.close()


def test_actions_that_are_one_hot() -> None:
    env = make_env(Chase, num_envs=2, backend="inline", categorical_action_encoding=False)
    check_env_specs(env)
    data = env.rollout(5, break_when_any_done=False)
    assert data["mouse", "action"].shape == (2, 5, 2, 3)
    check_chase(data.set(("mouse", "action"), data["mouse", "action"].argmax(-1)))
    env.close()


@MODES
def test_collectors(mode: str) -> None:
    env = make_env(Chase, num_envs=2, backend="inline", autoreset=mode)
    collector = Collector(env, frames_per_batch=20, total_frames=60)
    check_chase(torch.cat(list(collector), 1))
    collector.shutdown()
    pool = stepmill.make(Chase, num_envs=3, batch_size=2, backend="inline", autoreset=mode)
    collector = PoolCollector(pool, frames_per_batch=30, total_frames=120, num_steps=10)
    for data in collector:
        assert data["mouse"].batch_size == (3, 10, 2)
        check_chase(data)
    collector.shutdown()


def test_players_that_come_and_go() -> None:
    env = make_env("TemplatePlayers-v0", num_envs=3, max_num_players=4, tiles=6, max_episode_steps=9)
    check_env_specs(env)
    assert env.group_map == {"agents": [f"agent_{i}" for i in range(4)]}
    data = env.rollout(40, break_when_any_done=False)
    agents, following = data["agents"], data["next", "agents"]
    going_on = ~data["next", "done"].squeeze(-1)[:, :-1]
    assert torch.equal(following["mask"][:, :-1][going_on], agents["mask"][:, 1:][going_on])
    assert not agents["mask"].all()
    assert agents["mask"].any(-1).all()
    absent = ~agents["mask"] & ~following["mask"] & ~data["next", "done"]  # one may join just as the episode ends
    assert not following["observation"][absent].any()
    assert not following["reward"][absent].any()
    assert following["done"][~following["mask"]].all()
    env.close()


def test_some_envs_are_reset_or_stepped() -> None:
    env = make_env("TemplatePlayers-v0", num_envs=3, max_num_players=4, tiles=6, max_episode_steps=9)
    data = env.rollout(20, break_when_any_done=False, break_when_all_done=True)
    assert data["next", "done"][:, -1].all()
    now = env.reset()
    for _ in range(4):
        now = env.rand_step(now)["next"].exclude(("agents", "reward"))
    mask = torch.tensor([[False], [True], [False]])
    after = env.reset(now.clone().set("_reset", mask))
    for i, reset in enumerate(mask.flatten().tolist()):
        assert (after["agents", "observation"][i] == now["agents", "observation"][i]).all().item() is not reset
    env.close()


def test_names_that_are_taken() -> None:
    class Masked(Chase):
        def observation_space(self, agent: str) -> Any:
            return spaces.Dict({"mask": spaces.Discrete(2)})

    with stepmill.make(Masked, backend="inline") as pool, pytest.raises(SpaceError, match=r"parts of the .*'mask'"):
        PoolEnv(pool)

    class Bad(Chase):
        possible_agents = ("reward_0", "mouse_0")

    with stepmill.make(Bad, backend="inline") as pool, pytest.raises(SpaceError, match=r"kinds of players.*'reward'"):
        PoolEnv(pool)
