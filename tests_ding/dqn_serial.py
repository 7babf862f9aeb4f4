"""DI-engine's own DQN configuration for CartPole in ``serial_pipeline``: ``python dqn_serial.py MANAGER``.

Prints a line of JSON at the end.
"""

import argparse
import json
import os
import pickle
import sys
import tempfile
import time
from pathlib import Path

from ding.entry import serial_pipeline
from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("manager", help="a name of DI-engine's registry: stepmill_base, subprocess, ...")
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--max-env-step", type=int, default=20_000)
parser.add_argument("--folder", help="for what DI-engine writes; by default one that is made for it")
options = parser.parse_args()

os.chdir(options.folder or tempfile.mkdtemp(prefix="dqn-"))
main_config.exp_name = "dqn"
create_config.env_manager = {"type": options.manager, "import_names": ["stepmill.interop.ding"]}
start = time.perf_counter()
serial_pipeline((main_config, create_config), seed=options.seed, max_env_step=options.max_env_step)
result = pickle.loads(Path("dqn/result.pkl").read_bytes())
sys.stdout.write(
    json.dumps(
        {
            "manager": options.manager,
            "seconds": round(time.perf_counter() - start, 1),
            "env_step": int(result["env_step"]),
            "train_iter": int(result["train_iter"]),
            "eval_value": float(result["eval_value"]),
        }
    )
    + "\n"
)
