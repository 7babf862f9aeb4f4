"""What a pool needs to know about its Python envs, and only an env itself can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from stepmill.errors import ConfigError

__all__ = ["EnvDescription"]


@dataclass(frozen=True)
class EnvDescription:
    """Describes one env. All envs of a pool have the same spaces and the same number of players."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    num_players: int
    metadata: dict[str, Any]
    render_mode: str | None

    @classmethod
    def of(cls, env: Any) -> EnvDescription:
        return cls(
            env.observation_space,
            env.action_space,
            getattr(env, "num_players", 1),
            dict(getattr(env, "metadata", None) or {}),
            getattr(env, "render_mode", None),
        )

    def check_like(self, env_id: int, first: EnvDescription, first_id: int) -> None:
        """Raises if this env, ``env_id``, cannot share a pool with ``first``."""
        for name in ("observation_space", "action_space", "num_players"):
            expected, got = getattr(first, name), getattr(self, name)
            if expected != got:
                raise ConfigError(
                    f"env {env_id}: expected the {name} of env {first_id}, {expected}, got {got}. The envs of one pool "
                    "share their spaces"
                )
