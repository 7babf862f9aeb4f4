"""With `make test-ray` the managers run on a Ray cluster too."""

from __future__ import annotations

import pytest

from support import ray_cluster
from support.on_ray import make_on_ray


@pytest.fixture(scope="session", autouse=True)
def cluster() -> None:
    """Started before any test looks at what its process has: a test may not be blamed for what Ray opens."""
    if ray_cluster.WANTED:
        ray_cluster.cluster()
        make_on_ray("CartPole-v1", 1).close()  # some of it Ray opens with the first actor
