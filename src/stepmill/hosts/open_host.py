"""Which host a pool gets: the place where its envs live."""

from __future__ import annotations

from typing import Any

from stepmill.pool.open_local_host import open_local_host
from stepmill.pool.rows import RowFinisher
from stepmill.pool.settings import Settings
from stepmill.pool.source import NativeSource, PythonSource

__all__ = ["open_host"]


def open_host(
    source: NativeSource | PythonSource, settings: Settings, finisher: type[RowFinisher] = RowFinisher
) -> Any:
    """The host for the backend that was asked for, with its envs. ``finisher`` is for Python envs."""
    if settings.backend == "ray":
        from stepmill.pool.ray.host import RayHost

        return RayHost(source, settings, finisher)
    return open_local_host(source, settings, finisher)
