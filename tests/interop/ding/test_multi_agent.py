"""DI-engine's envs of many agents, of two players, and inside of its wrappers: in our managers as in its own."""

import copy

import numpy as np
import pytest
import torch
from ding.config import compile_config
from ding.entry import serial_pipeline, serial_pipeline_onpolicy
from ding.envs import AllinObsWrapper, BaseEnvManager, create_env_manager
from ding.framework import ding_init, task
from ding.framework.context import OfflineRLContext
from ding.framework.middleware import interaction_evaluator
from ding.model import DecisionTransformer
from ding.policy import DTPolicy
from ding_envs import Count, assert_same
from dizoo.box2d.lunarlander.config import lunarlander_dt_config
from dizoo.classic_control.cartpole.envs import CartPoleEnv
from dizoo.league_demo import selfplay_demo_ppo_main as league
from dizoo.league_demo.game_env import GameEnv
from dizoo.petting_zoo.config import (
    ptz_simple_spread_mappo_config,
    ptz_simple_spread_mappo_create_config,
    ptz_simple_spread_qmix_config,
    ptz_simple_spread_qmix_create_config,
)
from dizoo.petting_zoo.envs.petting_zoo_simple_spread_env import PettingZooEnv
from easydict import EasyDict

from stepmill.interop.ding import MANAGERS

FIRST = ["stepmill_base", "stepmill_subprocess"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)


class Three(Count):
    """Declares the action of one agent, and takes a list of three."""

    def step(self, action):
        assert type(action) is list, action
        assert len(action) == 3, action
        return super().step(action[0])


SPREAD = EasyDict(copy.deepcopy(ptz_simple_spread_qmix_config.env), max_cycles=4)
SPECIFIC = EasyDict(SPREAD, agent_specific_global_state=True)

# By name: how an env is made, and its action in a step.
ENVS = {
    "simple_spread": (lambda: PettingZooEnv(SPREAD), lambda step: np.array([step % 5, 1, 2])),
    "simple_spread, agents in a column": (lambda: PettingZooEnv(SPREAD), lambda step: np.array([[step % 5], [1], [2]])),
    "agent_specific_global_state": (lambda: PettingZooEnv(SPECIFIC), lambda step: np.array([step % 5, 1, 2])),
    "game of two players": (lambda: GameEnv("zero_sum"), lambda step: [step % 2, 1]),
    "inside of a wrapper": (lambda: AllinObsWrapper(CartPoleEnv(EasyDict())), lambda step: np.array([step % 2])),
    "a list by agent": (Three, lambda step: [np.array([step % 3])] * 3),
}


def play(name, env_fn, action_of, steps=9):
    """What two envs showed: what was ready, and the timestep."""
    defaults = BaseEnvManager.default_config() if name == "base" else {}
    manager = create_env_manager(EasyDict(defaults, type=name), [env_fn] * 2)
    manager.seed(5, dynamic_seed=False)
    manager.launch()
    seen = {0: [], 1: []}
    while len(seen[0]) < steps or len(seen[1]) < steps:
        ready = {i: obs for i, obs in manager.ready_obs.items() if len(seen[i]) < steps}
        for i, timestep in manager.step({i: action_of(len(seen[i]) + i) for i in ready}).items():
            seen[i].append((ready[i], timestep))
    manager.close()
    return seen


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("env", ENVS)
def test_what_comes_out_is_what_comes_out_of_dings_own(name, env):
    found, expected = play(name, *ENVS[env]), play("base", *ENVS[env])
    for i in expected:
        for (obs, ours), (its_obs, its) in zip(found[i], expected[i], strict=True):
            assert_same(obs, its_obs)
            assert_same(ours.obs, its.obs)
            assert_same(ours.reward, its.reward)
            assert ours.done is its.done
            info = {key: ours.info[key] for key in its.info} if isinstance(its.info, dict) else ours.info
            assert_same(info, its.info)


@pytest.mark.parametrize("name", ["stepmill_base_v2", "stepmill_subprocess_v2"])
def test_v2_managers_take_rows_of_agents(name):
    manager = create_env_manager(EasyDict(type=name), [lambda: PettingZooEnv(SPREAD)] * 2)
    manager.seed(5, dynamic_seed=False)
    manager.launch()
    assert manager.ready_obs.agent_state.shape == (2, 3, 18)
    timesteps = manager.step(np.array([[1, 2, 3], [4, 3, 2]]))
    assert [one.obs.global_state.shape for one in timesteps] == [(30,), (30,)]
    assert sorted(manager.random_action()) == [0, 1]
    assert not manager.env_state_done(1)
    manager.close()


# ---- pipelines -----------------------------------------------------------------------------------


def short(main, create, manager):
    main, create = copy.deepcopy(main), copy.deepcopy(create)
    main.exp_name = "run"
    main.env.update(collector_env_num=2, evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9)
    main.policy.cuda = False
    main.policy.collect.update(env_num=2, n_sample=64)
    main.policy.eval.env_num = 2
    main.policy.learn.batch_size = 32
    create.env_manager = EasyDict(type=manager, import_names=["stepmill.interop.ding"])
    return main, create


@pytest.mark.parametrize("manager", [*FIRST, "stepmill_async_subprocess"])
def test_qmix(manager):
    main, create = short(ptz_simple_spread_qmix_config, ptz_simple_spread_qmix_create_config, manager)
    main.policy.learn.update_per_collect = 2
    assert serial_pipeline((main, create), seed=0, max_train_iter=4) is not None


@pytest.mark.parametrize("manager", FIRST)
def test_mappo(manager):
    main, create = short(ptz_simple_spread_mappo_config, ptz_simple_spread_mappo_create_config, manager)
    main.policy.learn.epoch_per_collect = 1
    assert serial_pipeline_onpolicy((main, create), seed=0, max_train_iter=4) is not None


@pytest.mark.parametrize("manager", ["base", "subprocess"])
def test_self_play(manager, monkeypatch):
    """Two players, each with a policy of its own, by the battle collector and its evaluator."""
    monkeypatch.setattr(league, "BaseEnvManager", MANAGERS[manager])
    cfg = copy.deepcopy(league.selfplay_demo_ppo_config)
    cfg.exp_name = "run"
    league.main(cfg, seed=0, max_train_iter=2)


@pytest.mark.parametrize("manager", ["stepmill_base_v2", "stepmill_subprocess_v2"])
def test_a_decision_transformer_is_evaluated_in_wrapped_envs(manager):
    main, create = copy.deepcopy(lunarlander_dt_config.main_config), copy.deepcopy(lunarlander_dt_config.create_config)
    main.exp_name = "run"
    main.env.update(evaluator_env_num=2, n_evaluator_episode=2, stop_value=1e9)
    main.policy.update(device="cpu", evaluator_env_num=2, state_mean=[0.0] * 4, state_std=[1.0] * 4)
    main.policy.update(learning_rate=1e-4, clip_grad_norm_p=0.25)  # which DI-engine's own configuration lacks
    main.policy.model.update(state_dim=4, act_dim=2, n_blocks=1, h_dim=8)
    create.env_manager = EasyDict(type=manager, import_names=["stepmill.interop.ding"])
    cfg = compile_config(main, seed=0, create_cfg=create, auto=True, save_cfg=False)
    ding_init(cfg)
    with task.start(async_mode=False, ctx=OfflineRLContext()):
        env = create_env_manager(cfg.env.manager, [lambda: AllinObsWrapper(CartPoleEnv(EasyDict()))] * 2)
        policy = DTPolicy(cfg.policy, model=DecisionTransformer(**cfg.policy.model))
        task.use(interaction_evaluator(cfg, policy.eval_mode, env))
        task.run(max_step=1)
        assert 8.0 <= task.ctx.eval_value <= 200.0
