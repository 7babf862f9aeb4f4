"""Programs in the shape of CleanRL's, on Gymnasium's vector env and on a pool: the same weights, bit for bit, and the
same returns in their logs.

They are ``ppo.py``, ``ppo_continuous_action.py`` and ``ppo_atari_envpool.py``: the same wrappers in the same order, and
the same ways of reading infos. What changes is what docs/training-loops.md says: the line that makes the envs, and, in
scripts for Gymnasium 0.29, the loop over ``final_info``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import stepmill

pytestmark = pytest.mark.torch

NUM_ENVS, NUM_STEPS, UPDATES, SEED, LIMIT = 4, 32, 3, 1, 40
MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]

Log = Callable[[dict[str, Any]], list[float]]  # what a script logs of a step's infos


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For networks this small more threads only wait for each other, on a busy machine for long."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def logged(infos: dict[str, Any]) -> list[float]:
    """The returns by a ``RecordEpisodeStatistics`` around each env: under ``same_step`` they are in ``final_info``."""
    return by_wrapper(infos.get("final_info", infos))


def by_wrapper(infos: dict[str, Any]) -> list[float]:
    return infos["episode"]["r"][infos["_episode"]].tolist() if "episode" in infos else []


def counted(infos: dict[str, Any]) -> list[float]:
    """The returns by the pool itself."""
    return infos["episode_return"][infos["_episode_return"]].tolist() if "episode_return" in infos else []


class Agent:
    """An actor and a critic, for vectors or for four frames of a game."""

    def __init__(self, envs: Any) -> None:
        from torch import nn, optim

        shape, actions = envs.single_observation_space.shape, envs.single_action_space
        self._is_discrete = hasattr(actions, "n")
        is_picture = len(shape) == 3
        self._scale = 255.0 if is_picture else 1.0
        outputs = int(actions.n) if self._is_discrete else int(np.prod(actions.shape))
        look = [nn.Conv2d(4, 4, 8, 8), nn.ReLU(), nn.Flatten()] if is_picture else []
        inputs = 400 if is_picture else int(np.prod(shape))
        self._body = nn.Sequential(*look, nn.Linear(inputs, 32), nn.Tanh())
        self._actor, self._critic = nn.Linear(32, outputs), nn.Linear(32, 1)
        self.parameters = list(nn.ModuleList([self._body, self._actor, self._critic]).parameters())
        self.optimizer = optim.Adam(self.parameters, lr=2.5e-3, eps=1e-5)

    def act(self, obs: Any, action: Any = None) -> tuple[Any, Any, Any]:
        """The action, its log probability, and the value of the observation."""
        from torch.distributions import Categorical, Normal

        hidden = self._body(obs / self._scale)
        if self._is_discrete:
            categorical = Categorical(logits=self._actor(hidden))
            action = categorical.sample() if action is None else action
            return action, categorical.log_prob(action), self._critic(hidden).flatten()
        normal = Normal(self._actor(hidden), 0.5)
        action = normal.sample() if action is None else action
        return action, normal.log_prob(action).sum(-1), self._critic(hidden).flatten()


def train(envs: Any, log: Log, num_steps: int = NUM_STEPS, **seed: int) -> tuple[list[np.ndarray], list[float]]:
    """A few updates; returns the weights, and what was logged."""
    import torch

    np.random.seed(SEED)
    torch.manual_seed(SEED)
    agent, episodes = Agent(envs), []
    rows = (num_steps, envs.num_envs)
    obs = torch.zeros((*rows, *envs.single_observation_space.shape))
    actions = torch.zeros((*rows, *envs.single_action_space.shape))
    logprobs, rewards, dones, values = (torch.zeros(rows) for _ in range(4))
    first = envs.reset(**seed)
    next_obs, next_done = torch.Tensor(first[0] if isinstance(first, tuple) else first), torch.zeros(envs.num_envs)
    for _ in range(UPDATES):
        for step in range(num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                actions[step], logprobs[step], values[step] = action, _, _ = agent.act(next_obs)
            got, reward, *ends, infos = envs.step(action.numpy())  # old Gym's step has one array of ends
            rewards[step] = torch.tensor(reward).view(-1)
            next_obs, next_done = torch.Tensor(got), torch.Tensor(np.logical_or.reduce(ends))
            episodes += log(infos)
        with torch.no_grad():
            _, _, next_value = agent.act(next_obs)
        advantages = estimate(rewards, values, dones, next_value, next_done)
        update(agent, obs, actions, logprobs, advantages, advantages + values)
    envs.close()
    return [one.detach().numpy() for one in agent.parameters], episodes


def estimate(rewards: Any, values: Any, dones: Any, value: Any, done: Any) -> Any:
    """Generalized advantages, from the last step to the first."""
    import torch

    advantages, last = torch.zeros_like(rewards), torch.zeros_like(done)
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + 0.99 * value * (1.0 - done) - values[t]
        advantages[t] = last = delta + 0.99 * 0.95 * (1.0 - done) * last
        value, done = values[t], dones[t]
    return advantages


def update(agent: Agent, *batch: Any) -> None:
    """Two epochs of four minibatches."""
    import torch

    flat = [one.flatten(0, 1) for one in batch]
    order = np.arange(len(flat[0]))
    for _ in range(2):
        np.random.shuffle(order)
        for chosen in np.split(order, 4):
            obs, action, old, advantage, target = (one[chosen] for one in flat)
            _, new, value = agent.act(obs, action)
            ratio = (new - old).exp()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            clipped = torch.max(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.2)).mean()
            agent.optimizer.zero_grad()
            (clipped + 0.5 * ((value - target) ** 2).mean()).backward()
            torch.nn.utils.clip_grad_norm_(agent.parameters, 0.5)
            agent.optimizer.step()


def assert_same(ours: tuple[list[np.ndarray], list[float]], theirs: tuple[list[np.ndarray], list[float]]) -> None:
    assert ours[1] == theirs[1]
    assert theirs[1], "no episode ended"
    for mine, expected in zip(ours[0], theirs[0], strict=True):
        np.testing.assert_array_equal(mine, expected)


# ---- ppo.py -----------------------------------------------------------------------------------------


def make_env(task: str) -> Callable[[], Any]:
    return lambda: wrappers.RecordEpisodeStatistics(gymnasium.make(task, max_episode_steps=LIMIT))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["CartPole-v1", "Pendulum-v1"])
def test_ppo(task: str, mode: AutoresetMode) -> None:
    theirs = train(SyncVectorEnv([make_env(task) for _ in range(NUM_ENVS)], autoreset_mode=mode), logged, seed=SEED)
    settings: dict[str, Any] = {"num_envs": NUM_ENVS, "autoreset": mode}
    workers = stepmill.make(make_env(task), backend="process", num_workers=2, **settings)
    assert_same(train(workers, logged, seed=SEED), theirs)
    settings["max_episode_steps"] = LIMIT
    assert_same(train(stepmill.make(task, **settings), counted, seed=SEED), theirs)
    recorded = wrappers.vector.RecordEpisodeStatistics(stepmill.make(task, **settings))
    assert_same(train(recorded, by_wrapper, seed=SEED), theirs)


# ---- ppo_continuous_action.py -----------------------------------------------------------------------


def make_normalized_env(task: str) -> Any:
    env = gymnasium.make(task, max_episode_steps=LIMIT)
    env = wrappers.FlattenObservation(env)
    env = wrappers.RecordEpisodeStatistics(env)
    env = wrappers.ClipAction(env)
    env = wrappers.NormalizeObservation(env)
    env = wrappers.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
    env = wrappers.NormalizeReward(env, gamma=0.99)
    return wrappers.TransformReward(env, lambda reward: float(np.clip(reward, -10, 10)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["Pendulum-v1", "Hopper-v5"])
def test_ppo_continuous_action(task: str, mode: AutoresetMode) -> None:
    """The returns of the env itself are those of its ``RecordEpisodeStatistics``, not those of the pool."""
    if task == "Hopper-v5":
        pytest.importorskip("mujoco")
    makes = [partial(make_normalized_env, task)] * NUM_ENVS
    theirs = train(SyncVectorEnv(makes, autoreset_mode=mode), logged, seed=SEED)
    of_pool: list[float] = []

    def log(infos: dict[str, Any]) -> list[float]:
        of_pool.extend(counted(infos))
        return logged(infos)

    workers = stepmill.make(makes[0], num_envs=NUM_ENVS, backend="process", num_workers=2, autoreset=mode)
    assert_same(train(workers, log, seed=SEED), theirs)
    assert len(of_pool) == len(theirs[1])
    assert not np.isclose(of_pool, theirs[1]).any()  # sums of normalized rewards


# ---- ppo_atari_envpool.py ---------------------------------------------------------------------------


class CountsGames:
    """Sums the rewards as they were before they were clipped, until a game is over; for both forms of results."""

    def __init__(self, envs: Any) -> None:
        self.envs, self.num_envs = envs, len(envs)
        self.single_observation_space, self.single_action_space = envs.observation_space, envs.action_space

    def reset(self) -> Any:
        self._returns = np.zeros(self.num_envs, np.float32)
        return self.envs.reset()

    def step(self, action: Any) -> Any:
        obs, rewards, *ends, infos = self.envs.step(action)
        self._returns += infos["reward"]
        infos["r"] = self._returns.copy()
        infos["over"] = np.logical_or.reduce(ends) & (infos["lives"] == 0)
        self._returns *= 1 - infos["terminated"]
        return obs, rewards, *ends, infos

    def close(self) -> None:
        self.envs.close()


def test_ppo_atari_envpool() -> None:
    """As published, for EnvPool 0.x and old Gym, and ported to EnvPool 1.x."""
    pytest.importorskip("ale_py")
    pytest.importorskip("cv2")
    from stepmill.interop import envpool
    from stepmill.interop.envpool import legacy
    from support.atari import oracle

    options: dict[str, Any] = {"episodic_life": True, "reward_clip": True}
    makes = [lambda: oracle("qbert", innermost=wrappers.RecordEpisodeStatistics, **options)] * 2
    theirs = train(SyncVectorEnv(makes), logged, 128, seed=SEED)
    for module in (legacy, envpool):
        envs = CountsGames(module.make("Qbert-v5", env_type="gym", num_envs=2, seed=SEED, **options))
        assert_same(train(envs, lambda infos: infos["r"][infos["over"]].tolist(), 128), theirs)
    assert max(theirs[1]) > 10  # points, not clipped rewards
