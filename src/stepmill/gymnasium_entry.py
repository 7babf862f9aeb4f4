"""What ``gymnasium.make_vec("stepmill/<id>")`` calls. ``registry.register`` registers it with Gymnasium."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stepmill.make import make_gymnasium

if TYPE_CHECKING:
    from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["make_pool"]


def make_pool(task_id: str, num_envs: int = 1, max_episode_steps: int | None = None, **arguments: Any) -> GymnasiumPool:
    """Makes a pool from the keyword arguments of ``gymnasium.make_vec``."""
    return make_gymnasium(task_id, num_envs=num_envs, max_episode_steps=max_episode_steps, **arguments)
