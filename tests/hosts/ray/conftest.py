"""What tests of pools on Ray need. Those without the fixture ``cluster`` run without Ray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support import ray_cluster
from support.ray_here import RayHere
from support.waiting import no_hang


@pytest.fixture(scope="session")
def cluster() -> Any:
    """One for the whole run."""
    pytest.importorskip("ray", reason="ray is not installed: make test-ray")
    return ray_cluster.cluster()


@pytest.fixture
def ray_here(monkeypatch: pytest.MonkeyPatch) -> RayHere:
    """Takes the place of Ray."""
    ray = RayHere()
    monkeypatch.setattr("stepmill.hosts.ray.ray_host.connect", lambda settings: ray)
    return ray


@pytest.fixture
def deadline() -> Iterator[None]:
    """Actors and nodes are processes that start slowly, on a machine under load very slowly."""
    with no_hang(600):
        yield
