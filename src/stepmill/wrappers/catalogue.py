"""Wrappers by name: the list of all, how to put several on an env, and which shapes come out."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import gymnasium

from stepmill.errors import ConfigError
from stepmill.wrappers.action_wrappers import ActionRepeat, GymHybridDictAction, MaxAndSkipEnv
from stepmill.wrappers.base import Shapes
from stepmill.wrappers.episodes import EpisodicLifeEnv, FireResetEnv, NoopResetEnv, TimeLimit
from stepmill.wrappers.images import ObsTransposeWrapper, ScaledFloatFrame, WarpFrame
from stepmill.wrappers.normalisation import ObsNormEnv, RewardNormEnv, StaticObsNorm
from stepmill.wrappers.observations import FlatObs, FrameStack, ObsPlusPrevActRew, RamWrapper
from stepmill.wrappers.rewards import ClipRewardEnv, DelayReward, EvalEpisodeReturn

_CLASSES: tuple[type[gymnasium.Wrapper[Any, Any, Any, Any]], ...] = (
    NoopResetEnv,
    MaxAndSkipEnv,
    WarpFrame,
    ScaledFloatFrame,
    ClipRewardEnv,
    FrameStack,
    ObsTransposeWrapper,
    ObsNormEnv,
    RewardNormEnv,
    RamWrapper,
    EpisodicLifeEnv,
    FireResetEnv,
    TimeLimit,
    EvalEpisodeReturn,
    ActionRepeat,
    DelayReward,
    StaticObsNorm,
    FlatObs,
    ObsPlusPrevActRew,
    GymHybridDictAction,
)

WRAPPERS = {cls.__name__: cls for cls in _CLASSES}

# As in DI-engine's configs: "noop_reset" is NoopResetEnv.
_CONFIG_NAMES = {
    **{
        re.sub(r"(?<!^)(?=[A-Z])", "_", re.sub("(Env|Wrapper)$", "", name)).lower(): cls
        for name, cls in WRAPPERS.items()
    },
    "obs_plus_prev_action_reward": ObsPlusPrevActRew,
}

WrapperClass = type[gymnasium.Wrapper[Any, Any, Any, Any]]


def find_wrapper(wrapper: str | WrapperClass) -> WrapperClass:
    """The class of a name, ``"NoopResetEnv"`` or ``"noop_reset"``. A wrapper class, ours or not, is returned itself."""
    if isinstance(wrapper, type) and issubclass(wrapper, gymnasium.Wrapper):
        return wrapper
    if not isinstance(wrapper, str):
        raise ConfigError(f"wrappers: expected the name or the class of a wrapper, got {wrapper!r}")
    found = WRAPPERS.get(wrapper, _CONFIG_NAMES.get(wrapper))
    if found is None:
        near = difflib.get_close_matches(wrapper, [*WRAPPERS, *_CONFIG_NAMES], n=3, cutoff=0.5)
        hint = f", did you mean {' or '.join(near)}?" if near else "."
        raise ConfigError(f"wrappers: unknown wrapper {wrapper!r}{hint} There are {', '.join(WRAPPERS)}")
    return found


def update_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, wrappers: Any) -> Shapes:
    """The shapes that come out of wrappers, from those that go in.

    Args:
        obs_shape: The shape of an observation, as in ``BaseEnv.info()``; for a Dict space a dict of shapes.
        act_shape: The shape of an action.
        rew_shape: The shape of a reward.
        wrappers: Innermost first: names, classes, ``(name or class, kwargs)`` or ``{"type": ..., "kwargs": ...}``; or
            names joined by newlines. Empty names are skipped, unknown ones are an error.
    """
    for wrapper, kwargs in _entries(wrappers):
        cls = find_wrapper(wrapper)
        new_shape = getattr(cls, "new_shape", None)
        if new_shape is None:
            raise ConfigError(
                f"wrappers: expected wrappers with a new_shape method, got {cls.__name__}, which has none"
            )
        _check_arguments(cls, new_shape, (obs_shape, act_shape, rew_shape), kwargs)
        obs_shape, act_shape, rew_shape = new_shape(obs_shape, act_shape, rew_shape, **kwargs)
    return obs_shape, act_shape, rew_shape


def wrap(env: gymnasium.Env[Any, Any], wrappers: Any) -> gymnasium.Env[Any, Any]:
    """Puts wrappers on an env.

    Args:
        env: The env.
        wrappers: As for ``update_shape``, innermost first; functions from env to env too.
    """
    for wrapper, kwargs in _entries(wrappers):
        if isinstance(wrapper, str | type):
            wrapper = find_wrapper(wrapper)
            _check_arguments(wrapper, wrapper, (env,), kwargs)
        elif not callable(wrapper):
            raise ConfigError(
                f"wrappers: expected a wrapper's name or class, or a function from env to env, got {wrapper!r}"
            )
        inner, env = env, wrapper(env, **kwargs)
        if not isinstance(env, gymnasium.Env):
            raise ConfigError(f"{wrapper!r}: expected it to return a gymnasium.Env, got {env!r} from {inner}")
    return env


def wrapper_names(wrappers: Any) -> str:
    """The names joined by newlines, as in ``BaseEnvInfo.use_wrappers``."""
    return "\n".join(find_wrapper(wrapper).__name__ for wrapper, _ in _entries(wrappers))


def _entries(wrappers: Any) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Each wrapper and its arguments, whatever form they are written in."""
    if wrappers is None:
        return
    if isinstance(wrappers, str):
        wrappers = wrappers.splitlines()
    if isinstance(wrappers, Mapping) or not isinstance(wrappers, Iterable):
        raise ConfigError(f"wrappers: expected a list of wrappers, got {wrappers!r}")
    for entry in wrappers:
        wrapper, kwargs = _parts(entry)
        if isinstance(wrapper, str):
            wrapper = wrapper.strip()
        if wrapper != "":
            yield wrapper, kwargs


def _parts(entry: Any) -> tuple[Any, Mapping[str, Any]]:
    kwargs: Any = {}
    wrapper = entry
    if isinstance(entry, Mapping):
        if "type" not in entry or not set(entry) <= {"type", "kwargs"}:
            raise ConfigError(f'wrappers: expected a wrapper as {{"type": name, "kwargs": {{...}}}}, got {entry!r}')
        wrapper, kwargs = entry["type"], entry.get("kwargs", {})
    elif isinstance(entry, tuple | list):
        if len(entry) != 2:
            raise ConfigError(f"wrappers: expected a wrapper as (name, kwargs), got {entry!r}")
        wrapper, kwargs = entry
    if not isinstance(kwargs, Mapping):
        raise ConfigError(f"wrappers: expected the arguments of wrapper {wrapper!r} as a dict, got {kwargs!r}")
    return wrapper, kwargs


def _check_arguments(
    cls: WrapperClass, function: Callable[..., Any], given: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raises an error that lists the arguments of a wrapper if these do not match."""
    signature = inspect.signature(function)
    try:
        signature.bind(*given, **kwargs)
    except TypeError as error:
        names = ", ".join(list(signature.parameters)[len(given) :]) or "none"
        raise ConfigError(f"{cls.__name__}: {error}; its arguments are: {names}") from None
