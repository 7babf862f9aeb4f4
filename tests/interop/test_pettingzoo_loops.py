"""PettingZoo's usual loops: over one env, and over many with all agents of all of them in one batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill

pettingzoo = pytest.importorskip("pettingzoo")


class Gather(pettingzoo.ParallelEnv):
    """Three agents on a line, each rewarded for nearing a point that a seed draws. Over after six steps."""

    metadata = {"name": "gather_v0"}  # noqa: RUF012
    possible_agents = ["agent_0", "agent_1", "agent_2"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-20.0, 20.0, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents, self.time = list(self.possible_agents), 0
        self.goal = float(self.rng.uniform(-5, 5))
        self.at = {agent: float(place) for place, agent in enumerate(self.agents)}
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.time += 1
        for agent, action in actions.items():
            self.at[agent] += int(action) - 1
        acting = self.agents
        seen, over = self._seen(), dict.fromkeys(acting, self.time == 6)
        if self.time == 6:
            self.agents = []
        rewards = {agent: -abs(self.at[agent] - self.goal) for agent in acting}
        return seen, rewards, dict.fromkeys(acting, False), over, {agent: {} for agent in acting}

    def _seen(self) -> Any:
        return {agent: np.array([self.at[agent], self.goal], np.float32) for agent in self.agents}


def choose(observation: np.ndarray) -> np.ndarray:
    """Towards the goal, for any number of rows."""
    return np.sign(np.round(observation[..., 1] - observation[..., 0])).astype(int) + 1


def test_the_loop_over_one_env_gives_the_rows_of_a_pool() -> None:
    env = Gather()
    seeds = [3, 4]
    expected: list[Any] = []
    for seed in seeds:  # PettingZoo's loop
        observations, _ = env.reset(seed=seed)
        while env.agents:
            actions = {agent: choose(observations[agent]) for agent in env.agents}
            observations, rewards, _terminations, truncations, _ = env.step(actions)
            expected.append((seed, list(observations.values()), list(rewards.values()), list(truncations.values())))

    with stepmill.make(Gather, num_envs=2, backend="inline") as pool:
        obs, info = pool.reset(seed=3)
        for step in range(6):
            obs, reward, terminated, truncated, info = pool.step(choose(obs))
            players = info["players"]
            for env_id, seed in enumerate(seeds):
                rows = players["env_id"] == env_id
                told = expected[6 * env_id + step]
                assert told[0] == seed
                np.testing.assert_array_equal(obs[rows], told[1])
                np.testing.assert_allclose(reward[rows], told[2])
                assert players["truncated"][rows].tolist() == told[3]
                assert players["id"][rows].tolist() == [0, 1, 2]
        assert truncated.all()
        assert not terminated.any()


@pytest.mark.torch
def test_agents_of_all_envs_learn_from_one_batch() -> None:
    """One policy for all agents: rows are agents, as SuperSuit's vector envs have them."""
    import torch
    from torch.distributions import Categorical

    torch.manual_seed(0)
    with stepmill.make(Gather, num_envs=16, backend="inline", seed=0) as pool:
        actor = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.Tanh(), torch.nn.Linear(32, 3))
        optimizer = torch.optim.Adam(actor.parameters(), lr=0.01)
        means = []
        for _ in range(40):
            obs, _ = pool.reset()
            logprobs, rewards = [], []
            for _ in range(6):
                dist = Categorical(logits=actor(torch.from_numpy(obs)))
                action = dist.sample()
                obs, reward, _, _, info = pool.step(action)
                assert obs.shape == (48, 2)
                assert reward.shape == info["players"]["id"].shape == (48,)
                logprobs.append(dist.log_prob(action))
                rewards.append(torch.from_numpy(reward))
            reached = torch.stack(rewards).flip(0).cumsum(0).flip(0)
            advantage = (reached - reached.mean(1, keepdim=True)) / (reached.std() + 1e-8)
            optimizer.zero_grad()
            (-(torch.stack(logprobs) * advantage).mean()).backward()
            optimizer.step()
            means.append(float(torch.stack(rewards).mean()))
    assert np.mean(means[-5:]) > np.mean(means[:5]) + 0.5
