"""DI-engine's own DQN configuration for CartPole in ``serial_pipeline``: ``python dqn_serial.py MANAGER``.

Prints a line of JSON at the end.
"""

import pickle
from pathlib import Path

from ding.entry import serial_pipeline
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config
from dqn_program import begin, report

options = begin(__doc__)
serial_pipeline((main_config, create_config), seed=options.seed, max_env_step=options.max_env_step)
result = pickle.loads(Path("dqn/result.pkl").read_bytes())
report(options, result["env_step"], result["train_iter"], result["eval_value"])
