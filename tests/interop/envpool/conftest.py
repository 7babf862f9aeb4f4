"""Pools of the drop-in, closed after each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import stepmill.interop.envpool
import stepmill.interop.envpool.legacy


class Closing:
    """A module's functions; pools that they make are closed at the end."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.made: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)
        if not name.startswith("make") or name == "make_spec":
            return function

        def making(*args: Any, **kwargs: Any) -> Any:
            self.made.append(function(*args, **kwargs))
            return self.made[-1]

        return making


@pytest.fixture
def envpool() -> Iterator[Any]:
    """``import stepmill.interop.envpool as envpool``."""
    module = Closing(stepmill.interop.envpool)
    yield module
    for pool in module.made:
        pool.close()


@pytest.fixture
def legacy() -> Iterator[Any]:
    """``import stepmill.interop.envpool.legacy as envpool``."""
    module = Closing(stepmill.interop.envpool.legacy)
    yield module
    for pool in module.made:
        pool.close()
