"""The MuJoCo that is installed."""

from __future__ import annotations

import functools

from stepmill.sources.simulator import UnsuitableSimulator

__all__ = ["bindings_path"]


@functools.cache
def bindings_path() -> str:
    """The file of the bindings, which are linked to the library that MuJoCo's Python objects belong to."""
    import mujoco

    path = getattr(getattr(mujoco, "_functions", None), "__file__", None)
    if path is None:
        raise UnsuitableSimulator(f"there is no module mujoco._functions in {mujoco.__file__}")
    return str(path)
