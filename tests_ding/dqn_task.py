"""DI-engine's own DQN configuration for CartPole with its middlewares: ``python dqn_task.py MANAGER``.

Prints a line of JSON at the end.
"""

import argparse
import json
import os
import sys
import tempfile
import time

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

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("manager", help="a name of DI-engine's registry: stepmill_base_v2, subprocess_v2, ...")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--max-env-step", type=int, default=20_000)
parser.add_argument("--folder", help="for what DI-engine writes; by default one that is made for it")
options = parser.parse_args()

os.chdir(options.folder or tempfile.mkdtemp(prefix="dqn-"))
main_config.exp_name = "dqn"
create_config.env_manager = {"type": options.manager, "import_names": ["stepmill.interop.ding"]}
start = time.perf_counter()
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
sys.stdout.write(
    json.dumps(
        {
            "manager": options.manager,
            "seconds": round(time.perf_counter() - start, 1),
            "env_step": int(end.env_step),
            "train_iter": int(end.train_iter),
            "eval_value": float(end.last_eval_value),
        }
    )
    + "\n"
)
