"""Pools on a Ray cluster of this machine."""

from __future__ import annotations

from typing import Any

from stepmill.make import _prepare, _spec
from stepmill.pool.host import open_engine
from stepmill.pool.ray.host import RayHost
from stepmill.views.gymnasium import GymnasiumPool


def make_on_ray(task: Any, num_actors: int, cpus: float = 1.0, resources: Any = None, **arguments: Any) -> Any:
    """As ``make`` would."""
    import ray

    given = {"max_num_players": None, **arguments}
    source, settings, spec = _prepare(task, "gymnasium", None, given.pop("config", {}), **given)
    host = RayHost(ray, source, settings, num_actors, cpus, resources)
    engine = open_engine(host, settings)
    if spec is None:
        spec = _spec(source, settings, host.observation.space, host.action.space, host.info_space, host.num_players)
    return GymnasiumPool(engine, spec, settings, None)


def actors_of(pool: Any) -> list[Any]:
    """The handles of its actors."""
    return [actor.handle for actor in pool._engine.host._actors._actors]
