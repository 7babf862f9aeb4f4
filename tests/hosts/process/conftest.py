"""What several test files of worker processes need around their tests."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import stepmill
from support.envs.faulty import FaultyEnv
from support.waiting import Gate

MOST_ENVS = 4  # in one pool, on two workers: 0 and 1, 2 and 3


@pytest.fixture
def make(gate: Gate) -> Iterator[Any]:
    """Makes pools in which some envs suffer a mishap; closes them when the gate is open for good."""
    pools = contextlib.ExitStack()

    def build(mishaps: dict[int, str], num_envs: int = MOST_ENVS, **arguments: Any) -> Any:
        config = {key: arguments.pop(key) for key in ("where", "at") if key in arguments}
        length = {"length": arguments.pop("length", 1000)}
        configs = [
            {"mishap": mishaps[i], "folder": gate.folder, **config, **length} if i in mishaps else length
            for i in range(num_envs)
        ]
        settings = {"num_workers": max(num_envs // 2, 1), "backend": "process", **arguments}
        return pools.enter_context(stepmill.make(FaultyEnv, num_envs=num_envs, env_config=configs, **settings))

    with contextlib.ExitStack() as stack:
        stack.enter_context(pools)
        stack.callback(lambda: [gate.open(env_id) for env_id in range(MOST_ENVS) for _ in range(9)])
        yield build
