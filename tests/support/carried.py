"""A pool whose envs live in other pools of this process: parcels pass between them as they would between machines."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from stepmill import _native
from stepmill.hosts.faults import Fault, FaultPolicy
from stepmill.hosts.host import host_arguments, native_env_arguments, open_engine, python_env_arguments
from stepmill.hosts.infos import info_leaves
from stepmill.hosts.open_host import open_host
from stepmill.hosts.process.notes import read_notes
from stepmill.hosts.process.pickling import dumps
from stepmill.hosts.rows import Note, RowFinisher
from stepmill.make import _prepare
from stepmill.settings import Settings
from stepmill.sources.source import NativeSource, PythonSource


def part_of(source: Any, settings: Settings, first: int, last: int) -> tuple[Any, Settings]:
    """The envs of one group, in a pool of their own that gives results as they are ready."""
    source = source.part(first, last)
    count = last - first
    return source, replace(
        settings, num_envs=count, batch_size=count, num_workers=1, seed=settings.seed[first:last], as_ready=True
    )


class Carried(_native.RemoteHost):
    """Carries parcels between the pool and the engines of its groups."""

    def __init__(self, source: Any, settings: Settings, groups: list[int]) -> None:
        self.places = []
        for first, last in itertools.pairwise([*groups, settings.num_envs]):
            part, its = part_of(source, settings, first, last)
            self.places.append(open_engine(open_host(part, its), its))
        self.servers = [_native.ParcelServer(place) for place in self.places]
        inner = self.places[0].host
        self.observation, self.action = inner.observation, inner.action
        self.is_native = isinstance(source, NativeSource)
        policy = FaultPolicy(settings.on_error, settings.max_restarts)
        self._finish = RowFinisher(self.observation, policy, settings.autoreset)
        self.exchanges = 0
        if isinstance(source, NativeSource):
            limit, envs = source.max_episode_steps, native_env_arguments(source)
        else:
            limit, envs = None, self._python_envs(source, settings)
        super().__init__(**host_arguments(source.id, "carried", settings, limit), **envs, first_envs=groups)

    def _python_envs(self, source: PythonSource, settings: Settings) -> dict[str, Any]:
        from stepmill.registry.description import EnvDescription

        env = source.build(0)
        described = EnvDescription.of(env)
        env.close()
        infos = info_leaves(described.info_space, settings.autoreset)
        return python_env_arguments(self.observation, self.action, described, infos)

    def dispatch(self) -> None:
        """Nothing goes out before ``exchange``."""

    def exchange(self, seconds: float) -> None:
        """One round: everything that waits goes out, and from each group something comes back."""
        self.exchanges += 1
        for group, server in enumerate(self.servers):
            if self.waiting(group):
                server.send(*self.pack(group, 1_000_000))
            if self.away(group):
                answer = server.recv(1, 0, seconds, None)
                if answer is not None:
                    self.unpack(group, *answer)

    def pack_options(self, options: Any, preparation: Any) -> bytes | None:
        return None if options is None else dumps((options, None, preparation))

    def finish_rows(self, result: Any, notes: Any, faults: Any) -> Any:
        read = [note for note in read_notes(notes) if isinstance(note, Note)]
        return self._finish(result, read, [Fault.read(one) for one in faults])

    def describe(self) -> dict[str, Any]:
        return {"groups": len(self.places)}

    def close(self) -> None:
        super().close()
        for place in self.places:
            place.close()


def make_carried(task_id: Any, groups: list[int], **arguments: Any) -> tuple[_native.Engine, Carried]:
    """An engine over ``Carried``, and that."""
    given = {"max_num_players": None, **arguments}
    config = given.pop("config", {})
    source, settings, _ = _prepare(task_id, "gymnasium", None, config, **given)
    host = Carried(source, settings, groups)
    return open_engine(host, settings), host  # type: ignore[arg-type]
