"""Tests that need Ray."""

from __future__ import annotations

from typing import Any

import pytest

from support import ray_cluster

pytest.importorskip("ray", reason="ray is not installed: make test-ray")


@pytest.fixture(scope="session")
def cluster() -> Any:
    """One for the whole run."""
    return ray_cluster.cluster()
