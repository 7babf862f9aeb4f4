"""Lets ``gymnasium.make_vec("stepmill/<id>")`` find the pools."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium

from stepmill.make import make_gymnasium
from stepmill.registry import list_all_envs

if TYPE_CHECKING:
    from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["register_vector_envs"]


def register_vector_envs() -> None:
    """Registers every native id in Gymnasium, in the namespace ``stepmill``."""
    for id in list_all_envs():
        if f"stepmill/{id}" not in gymnasium.registry:
            gymnasium.register(f"stepmill/{id}", vector_entry_point=partial(_make, id))


def _make(id: str, num_envs: int = 1, max_episode_steps: int | None = None, **arguments: Any) -> GymnasiumPool:
    """What ``gymnasium.make_vec`` calls, with its keyword arguments; it takes no ``vector_kwargs`` for us."""
    return make_gymnasium(id, num_envs=num_envs, max_episode_steps=max_episode_steps, **arguments)
