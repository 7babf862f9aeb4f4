"""Pools on a device are compiled, which takes longer than all that tests do with them: so they are made once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stepmill


@pytest.fixture(scope="session")
def fresh_pool() -> Iterator[Callable[..., Any]]:
    """``fresh_pool(task, view, **arguments)``: the same pool each time, as if it had just been made."""
    made: dict[Any, Any] = {}

    def fresh(task: Any, view: str = "gymnasium", **arguments: Any) -> Any:
        key = repr((task if isinstance(task, str) else id(task), view, sorted(arguments.items())))
        if key not in made or made[key][0].closed:
            pool = stepmill.make(task, view, **arguments)
            made[key] = pool, pool._keeper().save_all(None), task
        pool, memory, _ = made[key]
        pool._keeper().restore_all(memory)
        pool._rollouts = None
        return pool

    yield fresh
    for pool, *_ in made.values():
        pool.close()
