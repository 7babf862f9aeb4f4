"""Hybrid actions: accelerate with a power, turn by an angle, or brake, and stop in the target.

``MovingEnv`` and ``SlidingEnv`` are Gymnasium envs, ``HybridEnv`` is either of them as a ``BaseEnv``. The ids
``Moving-v0`` and ``Sliding-v0`` run the same envs natively (``cpp/envs/hybrid``), equal bit for bit, pictures included.
``world.py`` describes the world, ``env.py`` has the envs and their picture.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from stepmill.registry.records import EnvRecord, add, register_drawer

if TYPE_CHECKING:
    from stepmill.zoo.hybrid.env import HybridEnv, MovingEnv, SlidingEnv

__all__ = ["HybridEnv", "MovingEnv", "SlidingEnv"]


def _make(
    env_class: str,
    render_mode: str | None = None,
    action_form: str = "tuple",
    time_limit: int = 200,
    target_radius: float = 0.1,
    penalty: float = 0.001,
) -> Any:
    from stepmill.zoo.hybrid import env

    return getattr(env, env_class)(
        render_mode, action_form=action_form, time_limit=time_limit, target_radius=target_radius, penalty=penalty
    )


for _name in ("Moving", "Sliding"):  # native, with our own Python env as the twin
    add(EnvRecord(f"{_name}-v0", native=_name, factory=functools.partial(_make, f"{_name}Env")))
    register_drawer(_name, "stepmill.zoo.hybrid.env:FieldDrawer")


def __getattr__(name: str) -> Any:
    """The classes, imported when they are asked for: they need much that registering ids does not."""
    if name in __all__:
        from stepmill.zoo.hybrid import env

        return getattr(env, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
