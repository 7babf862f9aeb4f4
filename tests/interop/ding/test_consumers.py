"""DI-engine's collectors and evaluators run on our managers, in both generations of its pipelines."""

import copy

import pytest
from ding.config import compile_config
from ding.data import DequeBuffer
from ding.entry import serial_pipeline
from ding.envs import create_env_manager
from ding.framework import ding_init, task
from ding.framework.context import OnlineRLContext
from ding.framework.middleware import (
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
)
from ding.model import DQN
from ding.policy import DQNPolicy
from ding.utils import ENV_REGISTRY
from ding.worker import EpisodeSerialCollector, InteractionSerialEvaluator
from ding_envs import Count
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config
from dizoo.classic_control.cartpole.envs import CartPoleEnv
from easydict import EasyDict

ENV_REGISTRY.register("count", Count, force_overwrite=True)
FIRST = ["stepmill_base", "stepmill_subprocess", "stepmill_async_subprocess"]
SECOND = ["stepmill_base_v2", "stepmill_subprocess_v2"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def configs(manager, **env):
    """DI-engine's own configuration of DQN for CartPole, made short."""
    main, create = copy.deepcopy(main_config), copy.deepcopy(create_config)
    main.exp_name = "run"
    main.env.update(collector_env_num=3, evaluator_env_num=2, n_evaluator_episode=4, stop_value=1e9, **env)
    main.policy.learn.update(update_per_collect=1, batch_size=8)
    main.policy.collect.n_sample = 24
    create.env_manager = EasyDict(type=manager, import_names=["stepmill.interop.ding"])
    return main, create


@pytest.mark.parametrize("manager", FIRST)
def test_the_serial_pipeline(manager):
    """SampleSerialCollector, InteractionSerialEvaluator, and random actions at first."""
    main, create = configs(manager)
    main.policy.random_collect_size = 50
    policy = serial_pipeline((main, create), seed=0, max_train_iter=6)
    assert policy is not None


@pytest.mark.parametrize("manager", FIRST)
def test_an_evaluation_returns_what_the_envs_say(manager):
    """Every env takes the action of the greatest number, which is its reward, in episodes of 7 and of 3 steps."""
    policy = AlwaysTwo()
    fns = [lambda: Count({"length": 7, "abnormal_at": 3}), lambda: Count({"length": 3})]
    env = create_env_manager(EasyDict(type=manager), fns)
    cfg = EasyDict(InteractionSerialEvaluator.default_config(), n_episode=4, stop_value=1e9, eval_freq=1)
    evaluator = InteractionSerialEvaluator(cfg, env, policy, exp_name="run")
    _, info = evaluator.eval()
    evaluator.close()
    # An abnormal step is left out, and the env goes on with an episode that counts.
    assert sorted(info["eval_episode_return"]) == [6.0, 6.0, 14.0, 14.0]


@pytest.mark.parametrize("manager", ["stepmill_base", "stepmill_subprocess"])
def test_whole_episodes_are_collected(manager):
    """By EpisodeSerialCollector, which steps some of the envs only. Data of an abnormal step are dropped."""
    fns = [lambda: Count({"length": 4, "abnormal_at": 2}), lambda: Count({"length": 6})]
    env = create_env_manager(EasyDict(type=manager), fns)
    cfg = EasyDict(EpisodeSerialCollector.default_config(), n_episode=4, collect_print_freq=100)
    collector = EpisodeSerialCollector(cfg, env, AlwaysTwo(), exp_name="run")
    episodes = collector.collect(4, policy_kwargs={})
    collector.close()
    assert {len(one) for one in episodes} <= {4, 6}
    for one in episodes:
        assert [int(step["obs"][2]) for step in one] == list(range(len(one)))
        assert [int(step["next_obs"][2]) for step in one] == list(range(1, len(one) + 1))


class AlwaysTwo:
    """As much of a policy as collectors and evaluators ask for."""

    def reset(self, env_id=None):
        pass

    def forward(self, obs, **_):
        import torch

        return {i: {"action": torch.tensor([2])} for i in obs}

    def process_transition(self, obs, output, timestep):
        return {"obs": obs, "next_obs": timestep.obs, "reward": timestep.reward, "done": timestep.done}

    def get_train_sample(self, episode):
        return episode

    def get_attribute(self, name):
        return {"cfg": EasyDict(type="always_two"), "unroll_len": 1, "device": "cpu", "n_episode": 4}.get(name)


@pytest.mark.parametrize("manager", SECOND)
def test_the_middlewares(manager):
    """StepCollector with random actions at first, interaction_evaluator, and a learner between them."""
    main, create = configs(manager)
    main.policy.random_collect_size = 30
    cfg = compile_config(main, seed=0, create_cfg=create, auto=True, save_cfg=True)
    ding_init(cfg)
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        collector_env = create_env_manager(cfg.env.manager, [lambda: CartPoleEnv({})] * 3)
        evaluator_env = create_env_manager(cfg.env.manager, [lambda: CartPoleEnv({})] * 2)
        policy = DQNPolicy(cfg.policy, model=DQN(**cfg.policy.model))
        buffer_ = DequeBuffer(size=1000)
        task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
        task.use(eps_greedy_handler(cfg))
        task.use(StepCollector(cfg, policy.collect_mode, collector_env, random_collect_size=30))
        task.use(data_pusher(cfg, buffer_))
        task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer_))
        task.run(max_step=5)
        ctx = task.ctx
        assert ctx.train_iter >= 4
        assert 8.0 <= ctx.last_eval_value <= 200.0
        assert ctx.env_step >= 30 + 4 * 24
    for row in buffer_.sample(20):
        assert row.data.obs.shape == (4,)
        assert row.data.action.shape == (1,)


@pytest.mark.parametrize("manager", SECOND)
def test_an_evaluation_by_middleware_returns_what_the_envs_say(manager):
    main, create = configs(manager)
    cfg = compile_config(main, seed=0, create_cfg=create, auto=True, save_cfg=False)
    cfg.env.n_evaluator_episode = 4
    fns = [lambda: Count({"length": 7, "abnormal_at": 3}), lambda: Count({"length": 3})]
    with task.start(async_mode=False, ctx=OnlineRLContext()):
        env = create_env_manager(cfg.env.manager, fns)
        task.use(interaction_evaluator(cfg, AlwaysTwo(), env))
        task.run(max_step=1)
        assert task.ctx.last_eval_value == (6 + 6 + 14 + 14) / 4
