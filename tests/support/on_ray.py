"""Pools on a Ray cluster of this machine."""

from __future__ import annotations

from typing import Any

import stepmill


def make_on_ray(task: Any, num_actors: int, **arguments: Any) -> Any:
    """With actors of one CPU each, of which the cluster of the tests has three."""
    settings = {"num_threads": 1} if isinstance(task, str) and ":" not in task else {}
    return stepmill.make(task, backend="ray", num_actors=num_actors, **{**settings, **arguments})


def actors_of(pool: Any) -> list[Any]:
    """The handles of its actors."""
    return [actor.handle for actor in pool._engine.host._actors._actors]
