"""What several test files of the pool need around their tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import stepmill
from support.probes import KINDS, VIEWS
from support.twins import BACKENDS, GOOD, TASKS, N


@pytest.fixture(params=[(kind, view) for kind in KINDS for view in VIEWS], ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A pool and its twin, both reset, each on its way."""
    kind, view = request.param
    pools = [stepmill.make(TASKS[kind], view, num_envs=N, seed=7, backend=BACKENDS[kind]) for _ in range(2)]
    for pool in pools:
        pool.reset()
        pool.step(GOOD)
    yield pools[0], pools[1]
    for pool in pools:
        pool.close()


@pytest.fixture
def make() -> Any:
    """``stepmill.make`` of Python envs that closes what it made, whatever its envs do then."""
    pools = []

    def build(*args: Any, **arguments: Any) -> Any:
        pools.append(stepmill.make(*args, **{"backend": "inline", **arguments}))
        assert not pools[-1].is_native
        assert pools[-1].backend == "inline"
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()
