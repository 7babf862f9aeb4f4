"""Lists of wrappers with a name, as in DI-engine's configurations: ``env_wrapper="atari_default"``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepmill.wrappers.atari import atari_wrappers

__all__ = ["DEFAULT_WRAPPERS", "default_wrappers"]

# Parts of the names of games that wait for FIRE: DI-engine's list.
_FIRE_FIRST = ("Pong", "Qbert", "SpaceInvader", "Montezuma")
_RETURN: list[Any] = [("EvalEpisodeReturn", {})]


def default_wrappers(name: str, env_id: str | None, is_train: bool) -> list[Any]:
    """The wrappers behind a name of ``DEFAULT_WRAPPERS``, innermost first.

    Args:
        name: The name of the list.
        env_id: The id of the env, if it is known: some games start with FIRE.
        is_train: Whether the env is for training: then rewards are replaced with their signs.
    """
    return DEFAULT_WRAPPERS[name](env_id or "", is_train)


def _atari(env_id: str, is_train: bool) -> list[Any]:
    fires = any(part in env_id for part in _FIRE_FIRST)
    return atari_wrappers(fire_reset=fires, clip_rewards=is_train, eval_return=False) + _RETURN


DEFAULT_WRAPPERS: dict[str, Callable[[str, bool], list[Any]]] = {
    "default": lambda env_id, is_train: _RETURN,
    "mujoco_default": lambda env_id, is_train: _RETURN,
    "gym_hybrid_default": lambda env_id, is_train: [("GymHybridDictAction", {}), *_RETURN],
    "atari_default": _atari,
}
