"""``PoolVectorEnv`` beside Tianshou's own vector envs, in its collectors, wrappers and trainers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tianshou.algorithm import DQN, PPO
from tianshou.algorithm.algorithm_base import Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import AsyncCollector, Batch, Collector, VectorReplayBuffer
from tianshou.env import BaseVectorEnv, DummyVectorEnv, VectorEnvNormObs
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

import stepmill
import stepmill.interop.envpool
from stepmill import errors
from stepmill.interop.tianshou import PoolVectorEnv, make_vector_env
from support.waiting import no_hang

# Tianshou compiles parts of itself when they are first used, which may take long: no deadlines around its collectors.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def make() -> Any:
    made = []

    def build(task: Any = "CartPole-v1", **arguments: Any) -> PoolVectorEnv:
        made.append(make_vector_env(task, **arguments))
        return made[-1]

    yield build
    for env in made:
        env.close()


def player(actions: int = 2) -> Any:
    """A policy for collectors that are to act at random."""
    net = Net(state_shape=(4,), action_shape=actions, hidden_sizes=[8])
    return DiscreteQLearningPolicy(model=net, action_space=spaces.Discrete(actions))


class Diary(gymnasium.Env):
    """Keeps its actions; tells an info now and then."""

    observation_space = spaces.Dict({"at": spaces.Box(0, 99, (2,), np.float32), "kind": spaces.Discrete(3)})
    action_space = spaces.Discrete(5)

    def __init__(self) -> None:
        self.actions: list[int] = []
        self.mood = "calm"

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return {"at": np.zeros(2, np.float32), "kind": 1}, {}

    def step(self, action: Any) -> Any:
        self.actions.append(int(action))
        done = len(self.actions) % 4 == 0
        told = {"inner": {"last": 1}} if done else {}
        return {"at": np.full(2, len(self.actions) % 99, np.float32), "kind": 2}, 1.0, done, False, told


# ---- beside Tianshou's own -----------------------------------------------------------------------


def test_it_is_a_vector_env(make: Any) -> None:
    env = make(num_envs=3)
    assert isinstance(env, BaseVectorEnv)
    assert len(env) == env.env_num == 3
    assert not env.is_async
    assert env.ready_id == [0, 1, 2]
    assert env.waiting_id == []
    assert "CartPole-v1" in repr(env)


def test_the_same_rows_as_a_dummy_vector_env(make: Any) -> None:
    ours, theirs = make(num_envs=3), DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(3)])
    assert ours.seed(7) == theirs.seed(7) == [[7], [8], [9]]
    for _ in range(2):
        first, infos = ours.reset()
        expected, their_infos = theirs.reset()
        np.testing.assert_array_equal(first, expected)
        assert infos.shape == their_infos.shape == (3,)
        actions = np.array([one.sample() for one in ours.action_space])
        assert actions.tolist() == [one.sample() for one in theirs.action_space]
        for _ in range(3):  # too few steps to fall
            for ids in (None, [2, 0], 1):
                act = actions if ids is None else actions[np.atleast_1d(ids)]
                for mine, their in zip(ours.step(act, ids), theirs.step(act, ids), strict=True):
                    np.testing.assert_array_equal(mine, their)
        np.testing.assert_array_equal(ours.reset([2])[0], theirs.reset([2])[0])
    theirs.close()


def drawn(many: Any) -> list[list[int]]:
    return [[int(one.sample()) for _ in range(12)] for one in many]


def test_spaces_are_lists_seeded_like_the_envs(make: Any) -> None:
    env = make(num_envs=3, seed=5)
    assert [len(env.action_space), len(env.observation_space)] == [3, 3]
    assert drawn(env.action_space) == drawn(spaces.Discrete(2, seed=seed) for seed in (5, 6, 7))
    env.reset(seed=8)
    assert drawn(env.action_space) == drawn(spaces.Discrete(2, seed=seed) for seed in (8, 9, 10))
    env.reset([1], seed=3)
    assert drawn(env.get_env_attr("action_space", 1)) == drawn([spaces.Discrete(2, seed=4)])
    env.seed([3, 1, 2])
    assert drawn(env.get_env_attr("action_space", [2, 0])) == drawn(spaces.Discrete(2, seed=seed) for seed in (2, 3))
    assert env.seed() == [None] * 3


def test_infos_and_dict_observations_are_rows(make: Any) -> None:
    env = make(Diary, num_envs=2, backend="inline")
    obs, infos = env.reset()
    assert obs.shape == (2,)
    assert obs[0]["kind"] == 1
    for _ in range(4):
        obs, _, terminated, _, infos = env.step(np.array([0, 3]))
    assert obs[1]["at"].tolist() == [4, 4]
    assert terminated.all()
    assert infos.tolist() == [{"inner": {"last": 1}, "env_id": 0}, {"inner": {"last": 1}, "env_id": 1}]
    env.reset()
    assert env.step(np.array([1]), [1])[-1].tolist() == [{"env_id": 1}]


class Words(Diary):
    """Its observations are texts."""

    observation_space = spaces.Text(9)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return "start", {}

    def step(self, action: Any) -> Any:
        return "x" * (1 + int(action)), 1.0, False, False, {}


def test_text_observations_are_arrays(make: Any) -> None:
    ours, theirs = make(Words, num_envs=3, backend="inline"), DummyVectorEnv([Words] * 3)
    np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0], strict=True)
    actions = np.array([0, 4, 2])
    seen = ours.step(actions)[0]
    assert isinstance(seen, np.ndarray)
    np.testing.assert_array_equal(seen, theirs.step(actions)[0], strict=True)
    theirs.close()


def test_attributes_of_the_envs(make: Any) -> None:
    env = make(Diary, num_envs=3, backend="inline")
    env.set_env_attr("mood", [1, 2], id=[0, 2])
    assert env.get_env_attr("mood") == [[1, 2], "calm", [1, 2]]
    assert env.get_env_attr("mood", 1) == ["calm"]
    drawn = make("FrozenLake-v1", num_envs=2, render_mode="ansi")
    drawn.reset()
    assert len(drawn.render()) == 2


def test_close(make: Any) -> None:
    env = make()
    env.close()
    assert env.is_closed
    with pytest.raises(errors.ClosedError):
        env.reset()


@pytest.mark.parametrize(
    ("pool", "error", "says"),
    [
        (lambda: stepmill.make("CartPole-v1", autoreset="same_step"), errors.UnsupportedError, "next_step"),
        (lambda: stepmill.make_gym("CartPole-v1"), errors.ConfigError, "gymnasium"),
        (lambda: stepmill.make("CartPole-v1", output="torch"), errors.ConfigError, "numpy arrays"),
        (lambda: stepmill.make("TemplatePlayers-v0", max_num_players=2), errors.UnsupportedError, "one player"),
        (lambda: stepmill.make("Blackjack-v1"), errors.SpaceError, "Tuple"),
    ],
)
def test_pools_that_tianshou_cannot_use(pool: Any, error: Any, says: str) -> None:
    with pool() as made, pytest.raises(error, match=says):
        PoolVectorEnv(made)


# ---- collectors ----------------------------------------------------------------------------------


def test_random_actions_vary(make: Any) -> None:
    env = make(Diary, num_envs=3, backend="inline", seed=1)
    collector = Collector(player(5), env, VectorReplayBuffer(300, 3))
    collector.collect(n_step=90, random=True, reset_before_collect=True)
    actions = env.get_env_attr("actions")
    assert [len(set(one)) for one in actions] == [5, 5, 5]
    assert actions[0] != actions[1]


@pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
def test_a_collector_collects_what_it_would_from_gymnasiums_envs(make: Any, autoreset: str) -> None:
    returns = []
    for build in (
        lambda: make(num_envs=4, autoreset=autoreset),
        lambda: DummyVectorEnv([lambda: gymnasium.make("CartPole-v1") for _ in range(4)]),
    ):
        env = build()
        env.seed(3)
        collector = Collector(player(), env, VectorReplayBuffer(2000, 4))
        collector.reset()
        stats = collector.collect(n_episode=9, random=True)
        returns.append((stats.returns.tolist(), stats.lens.tolist(), collector.buffer.obs_next.tolist()))
    assert returns[0] == returns[1]


def test_a_pool_in_envpools_form_works_in_a_collector_too() -> None:
    with stepmill.interop.envpool.make_gym("CartPole-v1", num_envs=4) as env:
        collector = Collector(player(), env, VectorReplayBuffer(2000, 4))
        stats = collector.collect(n_episode=8, random=True, reset_before_collect=True)
        assert stats.n_collected_episodes == 8
        assert len(set(collector.buffer.act[:50].tolist())) == 2


def test_async(make: Any) -> None:
    env = make(num_envs=6, batch_size=2)
    assert env.is_async
    assert env.wait_num == 2
    env.reset()
    with no_hang():
        result = env.step(np.zeros(6, int))
        assert len(result[0]) == 2
        assert len(env.waiting_id) == 4
        ids = [one["env_id"] for one in result[-1]]
        assert sorted(ids + env.waiting_id) == list(range(6))
        env.reset(ids[:1])  # while the others are under way
        assert len(env.step(None, env.waiting_id)[0]) == 2
        assert len(env.ready_id) == 4
        env.reset()
        assert env.ready_id == list(range(6))


class Remembers(Policy):
    """Tianshou's async collector takes only policies that have a state and an entry for the buffer."""

    def __init__(self) -> None:
        super().__init__(action_space=spaces.Discrete(2))

    def forward(self, batch: Any, state: Any = None, **_: Any) -> Any:
        rows = len(batch.obs)
        state = np.zeros(rows) if state is None else state + 1
        return Batch(act=np.arange(rows) % 2, state=state, policy=Batch(count=np.ones(rows)))


def test_an_async_collector(make: Any) -> None:
    env = make(num_envs=6, batch_size=2, seed=2)
    collector = AsyncCollector(Remembers(), env, VectorReplayBuffer(6000, 6))
    collector.reset()
    assert collector.collect(n_episode=12).n_collected_episodes >= 12
    collector.reset(reset_buffer=False)  # while envs are under way
    assert collector.collect(n_step=60).n_collected_steps >= 60
    for env_id, part in enumerate(collector.buffer.buffers):  # every transition is in the buffer of its env
        assert len(part) > 0
        assert (part.info.env_id[: len(part)] == env_id).all()


def test_wrappers_of_tianshou(make: Any) -> None:
    env = VectorEnvNormObs(make(num_envs=4))
    stats = Collector(player(), env, VectorReplayBuffer(2000, 4)).collect(
        n_step=400, random=True, reset_before_collect=True
    )
    assert stats.n_collected_steps == 400
    assert env.get_obs_rms().count > 1
    assert len(env.action_space) == 4


# ---- training ------------------------------------------------------------------------------------


def test_ppo_trains(make: Any) -> None:
    train, test = make(num_envs=4, seed=0), make(num_envs=2, seed=100)
    np.random.seed(0)
    torch.manual_seed(0)
    net = Net(state_shape=(4,), hidden_sizes=[32])
    actor = DiscreteActor(preprocess_net=net, action_shape=2)
    critic = DiscreteCritic(preprocess_net=Net(state_shape=(4,), hidden_sizes=[32]))
    policy = DiscreteActorPolicy(actor=actor, action_space=train.action_space[0])
    algorithm = PPO(policy=policy, critic=critic, optim=AdamOptimizerFactory(lr=1e-3))
    before = [one.detach().clone() for one in actor.parameters()]
    result = algorithm.run_training(
        OnPolicyTrainerParams(
            training_collector=Collector(algorithm, train, VectorReplayBuffer(2000, 4)),
            test_collector=Collector(algorithm, test),
            max_epochs=1,
            epoch_num_steps=400,
            update_step_num_repetitions=2,
            test_step_num_episodes=2,
            batch_size=64,
            collection_step_num_env_steps=200,
        )
    )
    assert result.update_step > 0
    assert any((old != new).any() for old, new in zip(before, actor.parameters(), strict=True))


def test_dqn_trains(make: Any) -> None:
    train = make(num_envs=4, seed=0)
    torch.manual_seed(0)
    policy = DiscreteQLearningPolicy(
        model=Net(state_shape=(4,), action_shape=2, hidden_sizes=[32]),
        action_space=train.action_space[0],
        eps_training=0.1,
    )
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3), target_update_freq=50)
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=Collector(algorithm, train, VectorReplayBuffer(2000, 4), exploration_noise=True),
            max_epochs=1,
            epoch_num_steps=400,
            collection_step_num_env_steps=40,
            update_step_num_gradient_steps_per_sample=0.1,
            batch_size=64,
            test_in_training=False,
        )
    )
    assert result.update_step > 0
