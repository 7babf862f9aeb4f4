"""Which host a pool gets: the place where its envs live."""

from __future__ import annotations

from typing import Any

from stepmill.pool.inline import InlineHost
from stepmill.pool.native import NativeHost
from stepmill.pool.settings import Settings, refuse_processes
from stepmill.pool.source import NativeSource, PythonSource

__all__ = ["open_host"]


def open_host(source: NativeSource | PythonSource, settings: Settings) -> Any:
    """The host for the backend that was asked for, with its envs."""
    if settings.backend == "ray":
        from stepmill.pool.ray.host import RayHost

        return RayHost(source, settings)
    only_processes = isinstance(source, PythonSource) and (settings.only_processes or source.has_islands)
    if settings.backend == "process" or only_processes:
        from stepmill.pool.process.host import ProcessHost

        return ProcessHost(source, settings)
    if isinstance(source, NativeSource):
        refuse_processes(settings.only_processes)
        return NativeHost(source, settings)
    if settings.backend == "inline":
        return InlineHost(source, settings)
    from stepmill.pool.auto import choose_backend
    from stepmill.pool.process.host import ProcessHost

    backend, launcher = choose_backend(source, settings)
    return InlineHost(source, settings) if backend == "inline" else ProcessHost(source, settings, launcher=launcher)
