"""A pool whose envs live in other pools of this process: parcels pass between them as they would between machines."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from stepmill import _native
from stepmill.hosts.elsewhere import EnvsElsewhere
from stepmill.hosts.faults import FaultPolicy
from stepmill.hosts.host import open_engine
from stepmill.hosts.open_host import open_host
from stepmill.hosts.process import outgoing
from stepmill.hosts.process.pickling import ON_RAY
from stepmill.hosts.rows import RowFinisher
from stepmill.make import _prepare
from stepmill.settings import Settings


def part_of(source: Any, settings: Settings, first: int, last: int) -> tuple[Any, Settings]:
    """The envs of one group, in a pool of their own that gives results as they are ready."""
    source = source.part(first, last)
    count = last - first
    return source, replace(
        settings, num_envs=count, batch_size=count, num_workers=1, seed=settings.seed[first:last], as_ready=True
    )


class Carried(EnvsElsewhere, _native.RemoteHost):
    """Carries parcels between the pool and the engines of its groups.

    Attributes:
        engines: One per group, with native envs, or Python envs in worker processes.
        parcels: The same, as they are given parcels.
    """

    backend = "carried"
    _destination = ON_RAY

    def __init__(self, source: Any, settings: Settings, groups: list[int]) -> None:
        self.engines, described = [], []
        for first, last in itertools.pairwise([*groups, settings.num_envs]):
            part, its = part_of(source, settings, first, last)
            engine = open_engine(open_host(part, its), its)
            self.engines.append(engine)
            described.append((first, None if engine.host.is_native else outgoing.pickled(engine.host.described)))
        self.parcels = [_native.ParcelServer(engine, None, None) for engine in self.engines]
        self.is_native = self.engines[0].host.is_native
        self._read_spaces(source, described)
        policy = FaultPolicy(settings.on_error, settings.max_restarts)
        self._finisher = RowFinisher(self.observation, policy, settings.autoreset)
        pool, envs = self._native_arguments(source, settings)
        super().__init__(**pool, **envs, first_envs=groups)

    def dispatch(self) -> None:
        """Nothing goes out before ``exchange``."""

    def exchange(self, seconds: float) -> None:
        """One round: everything that waits goes out, and from each group something comes back."""
        for group, parcels in enumerate(self.parcels):
            if self.waiting(group) or self.away(group):
                self.unpack(group, parcels.exchange(self.pack(group, 1_000_000, 1_000_000), 0.0, None))

    def describe(self) -> dict[str, Any]:
        return {"groups": len(self.engines)}

    def close(self) -> None:
        super().close()
        for engine in self.engines:
            engine.close()


def make_carried(task_id: Any, groups: list[int], **arguments: Any) -> tuple[_native.Engine, Carried]:
    """An engine over ``Carried``, and that."""
    given = {"max_num_players": None, **arguments}
    config = given.pop("config", {})
    source, settings, _ = _prepare(task_id, "gymnasium", None, config, **given)
    host = Carried(source, settings, groups)
    return open_engine(host, settings), host  # type: ignore[arg-type]
