"""Native envs in this process: on threads, or in the calling thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stepmill import _native
from stepmill.errors import EnvError
from stepmill.pool.faults import Fault, FaultPolicy
from stepmill.pool.host import host_arguments, make_simulators, native_env_arguments, native_spaces
from stepmill.pool.settings import Settings, refuse_same_step
from stepmill.pool.source import NativeSource

__all__ = ["NativeHost"]


class NativeHost(_native.NativeHost):
    """A ``Host``. Its envs are not Python objects, so it has no ``call``, ``get_attr`` and the like."""

    is_native = True
    render_mode = None

    def __init__(self, source: NativeSource, settings: Settings) -> None:
        refuse_same_step(source.max_num_players, settings)
        self.backend = "inline" if settings.backend == "inline" else "thread"
        self.observation, self.action = native_spaces(source)
        self.num_players = source.max_num_players
        self.metadata: dict[str, Any] = {}
        self._policy = FaultPolicy(settings.on_error, settings.max_restarts)
        super().__init__(
            **host_arguments(settings, source.max_episode_steps),
            **native_env_arguments(source),
            simulators=make_simulators(source.simulators, range(settings.num_envs)),
            num_threads=0 if settings.backend == "inline" else settings.num_threads,
            affinity_offset=settings.thread_affinity_offset,
        )

    def finish_rows(self, result: Any, notes: Sequence[Any], faults: Sequence[Any]) -> tuple[Any, EnvError | None]:
        """Decides about failures; native envs have no notes."""
        return result, self._policy.error_of([Fault.read(fault) for fault in faults])
