"""Pools whose envs draw pictures."""

from __future__ import annotations

from typing import Any

import stepmill
from stepmill.errors import UnknownConfigError
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["make_drawn"]


def make_drawn(target: Any, arguments: dict[str, Any]) -> GymnasiumPool:
    """``make`` with ``render_mode="rgb_array"``, unless another mode is given or the env does not know that option.

    An env of ours, a ``BaseEnv``, does not: whether it draws is shown by its ``render``.
    """
    pool: GymnasiumPool
    try:
        pool = stepmill.make(target, **{"render_mode": "rgb_array", **arguments})
    except UnknownConfigError:
        if "render_mode" in arguments:
            raise
        pool = stepmill.make(target, **arguments)  # which says so if another option is unknown
    return pool
