"""Tests that need Ray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import ray_cluster
from support.process_envs import no_hang

pytest.importorskip("ray", reason="ray is not installed: make test-ray")


@pytest.fixture(scope="session")
def cluster() -> Any:
    """One for the whole run."""
    return ray_cluster.cluster()


@pytest.fixture
def deadline() -> Iterator[None]:
    """Actors and nodes are processes that start slowly, on a machine under load very slowly."""
    with no_hang(600):
        yield
