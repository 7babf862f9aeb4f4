"""Which host a pool gets: the place where its envs live."""

from __future__ import annotations

from typing import Any

from stepmill.hosts.open_local_host import open_local_host
from stepmill.hosts.rows import RowFinisher
from stepmill.settings import Settings
from stepmill.sources.source import NativeSource, PythonSource


def open_host(
    source: NativeSource | PythonSource, settings: Settings, finisher: type[RowFinisher] = RowFinisher
) -> Any:
    """The host for the backend that was asked for, with its envs. ``finisher`` is for Python envs."""
    if settings.backend == "ray":
        from stepmill.hosts.ray.ray_host import RayHost

        return RayHost(source, settings, finisher)
    return open_local_host(source, settings, finisher)
