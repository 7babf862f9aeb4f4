"""What ``dqn_serial.py`` and ``dqn_task.py`` share: their arguments, and the line of JSON that they print."""

import argparse
import json
import os
import sys
import tempfile
import time
from typing import Any

from dizoo.classic_control.cartpole.config.cartpole_dqn_config import create_config, main_config


def begin(description: str | None) -> argparse.Namespace:
    """Reads the arguments, changes to the folder, and puts the manager into DI-engine's configuration."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("manager", help="a name in DI-engine's registry: stepmill_base, subprocess, ...")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-env-step", type=int, default=20_000)
    parser.add_argument("--folder", help="for what DI-engine writes; a new one by default")
    options = parser.parse_args()
    os.chdir(options.folder or tempfile.mkdtemp(prefix="dqn-"))
    main_config.exp_name = "dqn"
    create_config.env_manager = {"type": options.manager, "import_names": ["stepmill.interop.ding"]}
    options.start = time.perf_counter()
    return options


def report(options: argparse.Namespace, env_step: Any, train_iter: Any, eval_value: Any) -> None:
    """Prints how the run went, as a line of JSON."""
    result = {
        "manager": options.manager,
        "seconds": round(time.perf_counter() - options.start, 1),
        "env_step": int(env_step),
        "train_iter": int(train_iter),
        "eval_value": float(eval_value),
    }
    sys.stdout.write(json.dumps(result) + "\n")
