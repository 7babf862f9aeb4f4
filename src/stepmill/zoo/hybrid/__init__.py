"""Registers the ids of ``hybrid.py`` and ``pursuit.py``, our own envs."""

from __future__ import annotations

import functools
from typing import Any

from stepmill.registry.records import EnvRecord, add, register, register_drawer

__all__: list[str] = []

# Functions, so that nothing is imported before such an env is made.


def _field(
    env_class: str,
    render_mode: str | None = None,
    action_form: str = "tuple",
    time_limit: int = 200,
    target_radius: float = 0.1,
    penalty: float = 0.001,
) -> Any:
    from stepmill.zoo import hybrid

    return getattr(hybrid, env_class)(
        render_mode, action_form=action_form, time_limit=time_limit, target_radius=target_radius, penalty=penalty
    )


def _pursuit(cfg: Any = None) -> Any:
    from stepmill.zoo.pursuit import PursuitEnv

    return PursuitEnv(cfg)


for _name in ("Moving", "Sliding"):  # native, with our own Python env as the twin
    add(EnvRecord(f"{_name}-v0", native=_name, factory=functools.partial(_field, f"{_name}Env")))
    register_drawer(_name, "stepmill.zoo.hybrid_drawer:FieldDrawer")
register("Pursuit-v0", _pursuit)
