"""Ray, for tests that need it."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator

import pytest

# Before Ray is imported: otherwise it leaves a token in the user's home folder, and calls home.
os.environ["RAY_AUTH_MODE"] = "disabled"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import ray
    import ray.rllib
    import ray.tune


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    """Ray on this machine. Its folder has a short name, because the paths of sockets may have 107 characters."""
    folder = tempfile.mkdtemp(prefix="ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir=folder)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
