"""A pool that is watched, and a browser that may see it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import stepmill
from stepmill.tools.watching.watch import Watch
from support.envs.command import Painted
from support.watching import Client


@pytest.fixture
def pool() -> Iterator[Any]:
    with stepmill.make(Painted, num_envs=3, backend="inline", render_mode="rgb_array") as made:
        yield made


@pytest.fixture
def page(pool: Any) -> Watch:
    opened: Watch = pool.watch(open_browser=False)
    return opened


@pytest.fixture
def client(page: Watch) -> Client:
    return Client(page)
