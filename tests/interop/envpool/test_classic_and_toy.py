"""What EnvPool's own tests of classic control and toy text expect, beside Gymnasium's envs."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.toy_text import CliffWalkingEnv, TaxiEnv

CLASSIC = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]


@pytest.mark.parametrize("task", CLASSIC)
def test_spaces_are_gymnasiums(envpool: Any, task: str) -> None:
    official, ours = gymnasium.make(task), envpool.make_gym(task)
    np.testing.assert_allclose(official.observation_space.low, ours.observation_space.low)
    np.testing.assert_allclose(official.observation_space.high, ours.observation_space.high)
    assert ours.action_space == official.action_space


@pytest.mark.parametrize("task", CLASSIC)
def test_equal_seeds_give_equal_episodes_within_the_space(envpool: Any, task: str) -> None:
    num_envs = 4
    same, again, other = (envpool.make_gym(task, num_envs=num_envs, seed=seed) for seed in (0, 0, 1))
    space, actions = same.observation_space, same.action_space
    actions.seed(3)
    for _ in range(300):
        action = np.array([actions.sample() for _ in range(num_envs)])
        obs, equal, different = (env.step(action)[0] for env in (same, again, other))
        np.testing.assert_array_equal(obs, equal)
        assert not np.allclose(obs, different)
        for row in (*obs, *different):
            assert space.contains(row)


@pytest.mark.parametrize("task", ["MountainCar-v0", "MountainCarContinuous-v0"])
def test_a_state_goes_on_as_gymnasiums(envpool: Any, task: str) -> None:
    official, ours = gymnasium.make(task), envpool.make_gym(task, max_episode_steps=120)
    official.action_space.seed(1)
    official.reset()
    obs, _ = ours.reset()
    official.unwrapped.state = obs[0]
    for _ in range(100):
        action = official.action_space.sample()
        expected, reward, terminated, _, _ = official.step(action)
        obs, rewards, ended, _, _ = ours.step(np.array([action]), np.array([0]))
        np.testing.assert_allclose(expected, obs[0], atol=1e-4)
        np.testing.assert_allclose(reward, rewards[0], rtol=1e-6)
        assert terminated == ended[0]


@pytest.mark.parametrize("kind", ["gym", "dm"])
@pytest.mark.parametrize("catches", [True, False])
def test_catch_is_won_and_lost(envpool: Any, kind: str, catches: bool) -> None:
    rows, columns, num_envs = 10, 5, 3
    env = envpool.make("Catch-v0", kind, num_envs=num_envs)
    result = env.reset()
    obs = result.observation.obs if kind == "dm" else result[0]
    assert obs.shape == (num_envs, rows, columns)
    ball = np.where(obs[:, 0] == 1)[1]
    for t in range(rows - 1):
        paddle = np.where(obs[:, -1] == 1)[1]
        action = np.sign(ball - paddle) + 1
        if not catches:
            action = np.where(paddle - ball > 0, 2, 0)
        result = env.step(action, np.arange(num_envs))
        if kind == "dm":
            obs, reward, done = result.observation.obs, result.reward, result.last()
        else:
            obs, reward, terminated, truncated, _ = result
            done = terminated | truncated
        ends = t == rows - 2
        assert (reward == (0 if not ends else 1 if catches else -1)).all()
        assert (done == ends).all()


@pytest.mark.parametrize("size", [4, 8])
def test_frozen_lake_moves_as_its_table_says(envpool: Any, size: int) -> None:
    env = envpool.make_gym("FrozenLake-v1", num_envs=1, size=size, max_episode_steps=size * 25)
    assert env.observation_space.n == size * size
    assert env.action_space.n == 4
    table = gymnasium.make("FrozenLake-v1", map_name=f"{size}x{size}").unwrapped.P
    last, _ = env.reset()
    for action in np.random.default_rng(0).integers(4, size=300):
        obs, reward, terminated, truncated, _ = env.step(np.array([action]))
        possible = {(state, gain, end) for _, state, gain, end in table[int(last[0])][int(action)]}
        assert (int(obs[0]), float(reward[0]), bool(terminated[0])) in possible
        last = env.reset()[0] if terminated[0] or truncated[0] else obs


@pytest.mark.parametrize(("task", "official"), [("Taxi-v3", TaxiEnv), ("CliffWalking-v0", CliffWalkingEnv)])
def test_toy_text_goes_on_as_gymnasiums(envpool: Any, task: str, official: Any) -> None:
    env = envpool.make_gym(task, num_envs=1, max_episode_steps=1000)
    official = official()
    official.reset(seed=0)
    obs, _ = env.reset()
    official.s = int(obs[0])
    for action in np.random.default_rng(1).integers(env.action_space.n, size=200):
        obs, reward, terminated, _, info = env.step(np.array([action]))
        expected, gain, end, _, told = official.step(int(action))
        assert (obs[0], reward[0], terminated[0]) == (expected, gain, end)
        assert info["prob"][0] == told["prob"]
        if end:
            break


def test_nchain_returns(envpool: Any) -> None:
    num_envs = 1000
    env = envpool.make_gym("NChain-v0", num_envs=num_envs)
    assert (env.observation_space.n, env.action_space.n) == (5, 2)
    rng = np.random.default_rng(0)
    env.reset()
    total, done = np.zeros(num_envs), np.zeros(num_envs, bool)
    while not done[0]:
        _, reward, terminated, truncated, _ = env.step(rng.integers(2, size=num_envs))
        total, done = total + reward, terminated | truncated
    assert abs(total.mean() - 1310) < 30
    assert abs(total.std() - 78) < 15


def test_blackjack_is_an_array_of_three(envpool: Any) -> None:
    num_envs = 100
    env = envpool.make_gym("Blackjack-v1", num_envs=num_envs)
    assert env.observation_space == gymnasium.spaces.Box(0, 31, (3,), np.int32)
    rng = np.random.default_rng(0)
    total, returns = np.zeros(num_envs), []
    for _ in range(1000):
        obs, reward, terminated, _, _ = env.step(rng.integers(2, size=num_envs))
        assert obs.shape == (num_envs, 3)
        assert obs.dtype == np.int32
        total += reward
        returns += total[terminated].tolist()
        total[terminated] = 0
    assert abs(np.mean(returns) + 0.395) < 0.05
    assert abs(np.std(returns) - 0.89) < 0.05
