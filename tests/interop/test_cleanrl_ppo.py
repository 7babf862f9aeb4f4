"""PPO in the manner of CleanRL's ``ppo.py``, on Gymnasium's vector env and on a pool: the same weights, bit for bit.

Only the line that makes the envs differs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import stepmill

pytestmark = pytest.mark.torch

NUM_ENVS, NUM_STEPS, UPDATES, SEED, LIMIT = 4, 32, 3, 1, 40


def sync_vector_env(task: str, mode: AutoresetMode) -> Any:
    return SyncVectorEnv(
        [lambda: gymnasium.make(task, max_episode_steps=LIMIT) for _ in range(NUM_ENVS)], autoreset_mode=mode
    )


def pool(task: str, mode: AutoresetMode) -> Any:
    return stepmill.make(task, num_envs=NUM_ENVS, autoreset=mode, max_episode_steps=LIMIT)


def processes(task: str, mode: AutoresetMode) -> Any:
    limits = {"max_episode_steps": LIMIT, "autoreset": mode}
    return stepmill.make(task, num_envs=NUM_ENVS, backend="process", num_workers=2, **limits)


def train(envs: Any) -> tuple[list[np.ndarray], list[float]]:
    """A few updates; returns the weights, and the returns of the episodes that ended."""
    import torch
    from torch import nn
    from torch.distributions import Categorical, Normal

    np.random.seed(SEED)
    torch.manual_seed(SEED)
    inputs = int(np.prod(envs.single_observation_space.shape))
    is_discrete = isinstance(envs.single_action_space, gymnasium.spaces.Discrete)
    outputs = int(envs.single_action_space.n) if is_discrete else int(np.prod(envs.single_action_space.shape))
    critic = nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, 1))
    actor = nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, outputs))
    agent = nn.ModuleList([critic, actor])
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-3, eps=1e-5)

    def policy(obs: Any) -> Any:
        return Categorical(logits=actor(obs)) if is_discrete else Normal(actor(obs), 0.5)

    def log_prob(dist: Any, action: Any) -> Any:
        return dist.log_prob(action) if is_discrete else dist.log_prob(action).sum(-1)

    rows = (NUM_STEPS, NUM_ENVS)
    obs = torch.zeros((*rows, *envs.single_observation_space.shape))
    actions = torch.zeros((*rows, *envs.single_action_space.shape))
    logprobs, rewards, dones, values = (torch.zeros(rows) for _ in range(4))
    episodes: list[float] = []
    first, _ = envs.reset(seed=SEED)
    next_obs, next_done = torch.Tensor(first), torch.zeros(NUM_ENVS)
    for _ in range(UPDATES):
        for step in range(NUM_STEPS):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                dist = policy(next_obs)
                action = dist.sample()
                actions[step], logprobs[step], values[step] = action, log_prob(dist, action), critic(next_obs).flatten()
            got, reward, terminated, truncated, infos = envs.step(action.numpy())
            rewards[step] = torch.tensor(reward).view(-1)
            next_obs = torch.Tensor(got)
            next_done = torch.Tensor(np.logical_or(terminated, truncated))
            if "episode" in infos:
                episodes += infos["episode"]["r"][infos["_episode"]].tolist()
        with torch.no_grad():
            value, last = critic(next_obs).flatten(), torch.zeros(NUM_ENVS)
            advantages, not_done = torch.zeros(rows), 1.0 - next_done
            for t in reversed(range(NUM_STEPS)):
                delta = rewards[t] + 0.99 * value * not_done - values[t]
                advantages[t] = last = delta + 0.99 * 0.95 * not_done * last
                value, not_done = values[t], 1.0 - dones[t]
            returns = advantages + values
        flat = [one.flatten(0, 1) for one in (obs, actions, logprobs, advantages, returns)]
        order = np.arange(NUM_STEPS * NUM_ENVS)
        for _ in range(2):
            np.random.shuffle(order)
            for chosen in np.split(order, 4):
                o, a, old, advantage, target = (one[chosen] for one in flat)
                ratio = (log_prob(policy(o), a) - old).exp()
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
                clipped = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
                loss = clipped + 0.5 * ((critic(o).flatten() - target) ** 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
    envs.close()
    return [one.detach().numpy() for one in agent.parameters()], episodes


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_the_weights_are_those_of_gymnasiums_vector_env(task: str, mode: AutoresetMode) -> None:
    makes: list[Callable[..., Any]] = [sync_vector_env, pool, processes]
    results = [train(RecordEpisodeStatistics(make(task, mode))) for make in makes]
    expected, episodes = results[0]
    for weights, ended in results[1:]:
        for mine, theirs in zip(weights, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        assert ended == episodes
    assert episodes
