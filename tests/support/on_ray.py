"""Pools on a Ray cluster of this machine."""

from __future__ import annotations

import contextlib
from dataclasses import fields
from typing import Any

import stepmill
from support.waiting import eventually


def make_on_ray(task: Any, num_actors: int, **arguments: Any) -> Any:
    """With actors of one CPU each, of which the cluster of the tests has three."""
    settings: dict[str, Any] = {"start_timeout": 500}  # a machine under load starts actors slowly
    settings |= {"num_threads": 1} if isinstance(task, str) and ":" not in task else {}
    on_ray = {one.name: arguments.pop(one.name) for one in fields(stepmill.Ray) if one.name in arguments}
    return stepmill.make(task, backend=stepmill.Ray(num_actors=num_actors, **on_ray), **{**settings, **arguments})


def actors_of(pool: Any) -> list[Any]:
    """The handles of its actors."""
    return [actor.handle for actor in pool._engine.host._actors._actors]


def told_by_actors(pool: Any) -> list[dict[str, Any]]:
    """What each of its actors counts, as soon as all of them answer: on a machine under load that may take long."""
    told: list[Any] = [None]

    def all_answer() -> bool:
        told[:] = pool.stats()["actors"]
        return None not in told

    assert eventually(all_answer, 600)
    return told


def wait_until_dead(handle: Any) -> None:
    """``ray.kill`` returns before the actor is gone."""
    import ray

    with contextlib.suppress(ray.exceptions.RayActorError):
        while True:
            ray.get(handle.stats.remote(), timeout=600)
