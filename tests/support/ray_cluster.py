"""A Ray cluster on this machine: several raylets, each a node of one logical CPU, that can be killed."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import warnings
from pathlib import Path
from typing import Any

# Whether the suites over all backends run on Ray too: `make test-ray`.
WANTED = bool(os.environ.get("STEPMILL_RAY"))
NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


def python_path() -> str:
    """Lets actors find ``support``, and what this process finds."""
    tests = str(Path(__file__).parents[1])
    return os.pathsep.join(filter(None, [tests, os.environ.get("PYTHONPATH")]))


@functools.cache
def cluster() -> Any:
    """The cluster of this process, with three nodes. This process is in it, on the first of them."""
    # Before Ray is imported: otherwise it leaves a token in the user's home folder, and calls home.
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (otherwise Ray's 15 lets all else on the machine go first)
    import ray
    from ray.cluster_utils import Cluster

    logging.getLogger("ray").setLevel(logging.WARNING)  # it tells of every other cluster of the machine
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray's own code
        made = Cluster()
        for _ in range(3):
            made.add_node(**NODE)
        where = {"env_vars": {"PYTHONPATH": python_path()}}
        ray.init(address=made.address, log_to_driver=False, configure_logging=False, runtime_env=where)

    def end() -> None:
        ray.shutdown()
        made.shutdown()

    atexit.register(end)
    return made
