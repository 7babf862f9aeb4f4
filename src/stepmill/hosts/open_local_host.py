"""Which host a pool gets whose envs live on this machine."""

from __future__ import annotations

from typing import Any

from stepmill.hosts.inline_host import InlineHost
from stepmill.hosts.native_host import NativeHost
from stepmill.hosts.rows import RowFinisher
from stepmill.settings import Settings, refuse_processes
from stepmill.sources.source import NativeSource, PythonSource


def open_local_host(
    source: NativeSource | PythonSource, settings: Settings, finisher: type[RowFinisher] = RowFinisher
) -> Any:
    """The host for the backend that was asked for, with its envs. ``finisher`` is for Python envs."""
    if isinstance(source, PythonSource):
        only_processes = bool(settings.only_processes or source.has_islands)
    else:
        only_processes = bool(source.worker_environ)
    if settings.backend == "process" or only_processes:
        from stepmill.hosts.process.process_host import ProcessHost

        return ProcessHost(source, settings, finisher)
    if isinstance(source, NativeSource):
        refuse_processes(settings.only_processes)
        return NativeHost(source, settings)
    if settings.backend == "inline":
        return InlineHost(source, settings, finisher)
    from stepmill.hosts.auto import choose_backend
    from stepmill.hosts.process.process_host import ProcessHost

    backend, launcher, settings = choose_backend(source, settings)
    if backend == "inline":
        return InlineHost(source, settings, finisher)
    return ProcessHost(source, settings, finisher, launcher=launcher)
