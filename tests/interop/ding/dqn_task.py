"""DI-engine's own DQN configuration for CartPole with its middlewares: ``python dqn_task.py MANAGER``.

Prints a line of JSON at the end.
"""

from ding.config import compile_config
from ding.data import DequeBuffer
from ding.envs import create_env_manager
from ding.framework import ding_init, task
from ding.framework.context import OnlineRLContext
from ding.framework.middleware import (
    OffPolicyLearner,
    StepCollector,
    data_pusher,
    eps_greedy_handler,
    interaction_evaluator,
    termination_checker,
)
from ding.model import DQN
from ding.policy import DQNPolicy
from ding.utils import set_pkg_seed
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config
from dizoo.classic_control.cartpole.envs import CartPoleEnv
from dqn_program import begin, report

options = begin(__doc__)
cfg = compile_config(main_config, seed=options.seed, create_cfg=create_config, auto=True, save_cfg=True)
ding_init(cfg)
with task.start(async_mode=False, ctx=OnlineRLContext()):
    collector_env = create_env_manager(cfg.env.manager, [lambda: CartPoleEnv({})] * cfg.env.collector_env_num)
    evaluator_env = create_env_manager(cfg.env.manager, [lambda: CartPoleEnv({})] * cfg.env.evaluator_env_num)
    set_pkg_seed(cfg.seed, use_cuda=False)
    policy = DQNPolicy(cfg.policy, model=DQN(**cfg.policy.model))
    buffer = DequeBuffer(size=cfg.policy.other.replay_buffer.replay_buffer_size)
    task.use(interaction_evaluator(cfg, policy.eval_mode, evaluator_env))
    task.use(eps_greedy_handler(cfg))
    task.use(StepCollector(cfg, policy.collect_mode, collector_env))
    task.use(data_pusher(cfg, buffer))
    task.use(OffPolicyLearner(cfg, policy.learn_mode, buffer))
    task.use(termination_checker(max_env_step=options.max_env_step))
    task.run()
    end = task.ctx
report(options, end.env_step, end.train_iter, end.last_eval_value)
