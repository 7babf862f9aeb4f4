"""Lists of wrappers: ``wrap_atari``, the usual ones for Atari games, and those that DI-engine has names for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from stepmill.errors import ConfigError, UnknownEnvError
from stepmill.system.optional import require
from stepmill.wrappers.catalogue import wrap
from stepmill.wrappers.episodes import fires


def wrap_atari(
    env: str | gymnasium.Env[Any, Any],
    *,
    noop_max: int | None = 30,
    frame_skip: int | None = 4,
    episode_life: bool = True,
    fire_reset: bool = True,
    size: int | tuple[int, int] | None = 84,
    scale: bool = True,
    clip_rewards: bool = True,
    frame_stack: int | None = 4,
    eval_return: bool = True,
    config: Mapping[str, Any] | None = None,
) -> gymnasium.Env[Any, Any]:
    """An Atari game with the usual preprocessing: by default ``(4, 84, 84)``, float32 from 0 to 1.

    From the innermost to the outermost, each unless its argument is None, 0 or False:

    ================ ================= =====================================================
    ``eval_return``  EvalEpisodeReturn the true score, when the game is really over
    ``noop_max``     NoopResetEnv      between 1 and this many no-ops after each reset
    ``frame_skip``   MaxAndSkipEnv     takes each action this many times
    ``episode_life`` EpisodicLifeEnv   a lost life ends the episode (for training)
    ``fire_reset``   FireResetEnv      FIRE after each reset, in games whose action 1 is FIRE
    ``size``         WarpFrame         grey, and of this size
    ``scale``        ScaledFloatFrame  float32 from 0 to 1; else uint8
    ``clip_rewards`` ClipRewardEnv     the sign of the reward (for training)
    ``frame_stack``  FrameStack        the last frames, this many
    ================ ================= =====================================================

    Args:
        env: An id, such as ``"ALE/Pong-v5"`` or ``"PongNoFrameskip-v4"``, or an env.
        noop_max: See the table.
        frame_skip: See the table. The game itself must not skip frames then: a game made from an id does not, an env
            must be made with ``frameskip=1``. With None the game skips frames as it does by default.
        episode_life: See the table.
        fire_reset: See the table.
        size: See the table.
        scale: See the table.
        clip_rewards: See the table.
        frame_stack: See the table.
        eval_return: See the table.
        config: Arguments for ``gymnasium.make``, if ``env`` is an id.
    """
    if isinstance(env, str):
        env = _make(env, skips=not frame_skip, config=config or {})
    elif not isinstance(env, gymnasium.Env):
        raise ConfigError(f"wrap_atari: expected the id of a game or a gymnasium.Env, got {env!r}")
    elif config:
        raise ConfigError(f"wrap_atari: config: expected none for an env that exists already, got {dict(config)!r}")
    own_skip = getattr(env.unwrapped, "_frameskip", 1)
    if frame_skip not in (None, 0, 1) and own_skip != 1:
        raise ConfigError(
            f"wrap_atari: frame_skip: expected an env that skips no frames itself (frameskip=1), or frame_skip=None, "
            f"got an env with frameskip={own_skip} and frame_skip={frame_skip}"
        )
    return wrap(
        env,
        atari_wrappers(
            noop_max=noop_max,
            frame_skip=frame_skip,
            episode_life=episode_life,
            fire_reset=fire_reset and fires(env),
            size=size,
            scale=scale,
            clip_rewards=clip_rewards,
            frame_stack=frame_stack,
            eval_return=eval_return,
        ),
    )


def atari_wrappers(
    *,
    noop_max: int | None = 30,
    frame_skip: int | None = 4,
    episode_life: bool = True,
    fire_reset: bool = True,
    size: int | tuple[int, int] | None = 84,
    scale: bool = True,
    clip_rewards: bool = True,
    frame_stack: int | None = 4,
    eval_return: bool = True,
) -> list[tuple[str, dict[str, Any]]]:
    """The wrappers of ``wrap_atari``, for ``update_shape``, ``wrap`` and ``wrapper_names``: names and arguments.

    There is no env to ask for its actions here, so ``fire_reset`` is not checked. It changes no shape.
    """
    return [
        *([("EvalEpisodeReturn", {})] if eval_return else []),
        *([("NoopResetEnv", {"noop_max": noop_max})] if noop_max else []),
        *([("MaxAndSkipEnv", {"skip": frame_skip})] if frame_skip else []),
        *([("EpisodicLifeEnv", {})] if episode_life else []),
        *([("FireResetEnv", {})] if fire_reset else []),
        *([("WarpFrame", {"size": size})] if size else []),
        *([("ScaledFloatFrame", {})] if scale else []),
        *([("ClipRewardEnv", {})] if clip_rewards else []),
        *([("FrameStack", {"n_frames": frame_stack})] if frame_stack else []),
    ]


def _make(id: str, skips: bool, config: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    try:
        spec = gymnasium.spec(id)
    except gymnasium.error.Error:
        require("ale_py", "ale-py", "atari", "wrap_atari")  # the import registers the games
        try:
            spec = gymnasium.spec(id)
        except gymnasium.error.Error as error:
            raise UnknownEnvError(f"wrap_atari: unknown env id {id!r}: {error}") from error
    no_skip = {} if skips or "frameskip" not in spec.kwargs else {"frameskip": 1}
    return gymnasium.make(spec, **{"disable_env_checker": True, **no_skip, **config})


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
