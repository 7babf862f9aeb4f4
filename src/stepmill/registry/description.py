"""What a pool needs to know about its Python envs, and only an env itself can tell."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from stepmill.errors import ConfigError


def player_rows(space: spaces.Space[Any], envs: int, players: int, kinds: tuple[str, ...]) -> spaces.Space[Any]:
    """The space of the rows of all players of some envs, from that of one player, or of one of each kind."""
    if not kinds:
        return batch_space(space, envs * players)
    assert isinstance(space, spaces.Dict)
    return spaces.Dict({kind: batch_space(one, envs * kinds.count(kind)) for kind, one in space.items()})


@functools.lru_cache(256)
def defines_coroutines(kind: Any) -> bool:
    """Whether envs of a class have a ``reset``, ``step`` or ``close`` that is a coroutine."""
    return any(inspect.iscoroutinefunction(getattr(kind, name, None)) for name in ("reset", "step", "close"))


def has_coroutines(env: Any) -> bool:
    """Whether an env has such methods, itself or inside of wrappers. An adapter that passes them on says so."""
    while not defines_coroutines(type(env)):  # type: ignore[arg-type]  # mypy does not know that classes are hashable
        if not isinstance(env, gymnasium.Wrapper):
            return _says_so(env)
        env = env.env
    return True


def _says_so(env: Any) -> bool:
    """Whether it has the attribute. No code of the env runs, and it stays fast: see ``EnvBuilder``."""
    try:
        return bool(object.__getattribute__(env, "has_coroutines"))
    except AttributeError:
        return False


def blind_wrapper(env: Any) -> gymnasium.Wrapper[Any, Any, Any, Any] | None:
    """The outermost of Gymnasium's wrappers that takes a coroutine for the result of ``reset`` or ``step``."""
    if not has_coroutines(env):
        return None
    while isinstance(env, gymnasium.Wrapper):
        for name in ("reset", "step"):
            own = getattr(type(env), name)
            if own is not getattr(gymnasium.Wrapper, name) and not inspect.iscoroutinefunction(own):
                return env
        env = env.env
    return None


@dataclass(frozen=True)
class EnvDescription:
    """Describes one env. All envs of a pool have the same spaces and the same number of players."""

    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    num_players: int
    metadata: dict[str, Any]
    render_mode: str | None
    player_kinds: tuple[str, ...] = ()  # of each player; empty if all have the same spaces
    players_vary: bool = False  # they come and go
    info_space: spaces.Dict | None = None  # the keys of its infos that travel as arrays, like observations
    is_async: bool = False  # its methods are coroutines

    @classmethod
    def of(cls, env: Any) -> EnvDescription:
        info_space = getattr(env, "info_space", None)
        return cls(
            env.observation_space,
            env.action_space,
            getattr(env, "num_players", 1),
            dict(getattr(env, "metadata", None) or {}),
            getattr(env, "render_mode", None),
            getattr(env, "player_kinds", ()),
            getattr(env, "players_vary", False),
            info_space if isinstance(info_space, spaces.Dict) else None,
            has_coroutines(env),
        )

    @classmethod
    def of_all(cls, envs: Sequence[Any]) -> EnvDescription:
        """Describes the first; what it says about infos and coroutines holds for all."""
        first = cls.of(envs[0])
        if first.info_space is not None:
            return functools.reduce(cls.common, map(cls.of, envs))
        return replace(first, is_async=any(map(has_coroutines, envs)))

    def common(self, other: EnvDescription) -> EnvDescription:
        """The description for both: infos travel as arrays only if they are declared alike."""
        infos = self.info_space if self.info_space == other.info_space else None
        return replace(self, info_space=infos, is_async=self.is_async or other.is_async)

    def check_like(self, env_id: int, first: EnvDescription, first_id: int) -> None:
        """Raises if this env, ``env_id``, cannot share a pool with ``first``."""
        for name in ("observation_space", "action_space", "num_players", "player_kinds", "players_vary"):
            expected, got = getattr(first, name), getattr(self, name)
            if expected != got:
                raise ConfigError(
                    f"env {env_id}: expected the {name} of env {first_id}, {expected}, got {got}. The envs of one pool "
                    "share their spaces"
                )
