"""One cluster per run: three raylets of one CPU each, of which tests may kill all but the first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="ray is not installed: make test-ray")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made = Cluster()
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    made.add_node(**small)
    for _ in range(2):
        made.add_node(**small)
    tests = str(Path(__file__).parents[2])  # as `support` is found here
    where = {"env_vars": {"PYTHONPATH": tests}}
    ray.init(address=made.address, log_to_driver=False, configure_logging=False, runtime_env=where)
    yield made
    ray.shutdown()
    made.shutdown()
