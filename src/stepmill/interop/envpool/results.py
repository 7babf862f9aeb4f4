"""From the engine's results to EnvPool's: discrete observations are int32, and every row has every info."""

from __future__ import annotations

from collections.abc import Callable
from keyword import iskeyword
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.spec import PoolSpec

__all__ = ["Results", "is_field", "is_int32", "names_of_observation", "shown_observation"]

Convert = Callable[[Any], Any]


def shown_observation(space: spaces.Space[Any]) -> tuple[spaces.Space[Any], Convert | None]:
    """The space that EnvPool shows for ours, and how a batch of observations becomes one of it, if it has to."""
    if is_int32(space):
        return space, _as_int32
    if isinstance(space, spaces.Tuple) and all(map(is_int32, space)):  # Blackjack's
        low = min(int(one.start) for one in space)
        high = max(int(one.start + one.n) - 1 for one in space)
        return spaces.Box(low, high, (len(space),), np.int32), _in_columns
    if not isinstance(space, spaces.Dict):
        return space, None
    parts = {key: shown_observation(one) for key, one in space.items()}
    converts = {key: convert for key, (_, convert) in parts.items() if convert is not None}
    if not converts:
        return space, None
    shown = spaces.Dict({key: one for key, (one, _) in parts.items()})
    return shown, lambda obs: {**obs, **{key: convert(obs[key]) for key, convert in converts.items()}}


def is_int32(space: Any) -> bool:
    """Whether it is a discrete space whose values fit into EnvPool's type for them. Others stay as they are."""
    if not isinstance(space, spaces.Discrete):
        return False
    limits = np.iinfo(np.int32)
    return bool(limits.min <= space.start and space.start + space.n - 1 <= limits.max)


def names_of_observation(space: spaces.Space[Any]) -> list[str] | None:
    """The fields of a dm observation, one per key of a Dict; None: it is one field, ``obs``."""
    if not isinstance(space, spaces.Dict) or not all(map(is_field, space)):
        return None
    return list(space)


def is_field(name: Any) -> bool:
    """Whether a named tuple can have a field of that name."""
    return isinstance(name, str) and name.isidentifier() and not iskeyword(name) and name[0] != "_"


def _as_int32(obs: np.ndarray) -> np.ndarray:
    return obs.astype(np.int32)


def _in_columns(obs: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack(obs, axis=-1, dtype=np.int32, casting="unsafe")


class Results:
    """Converts results. It does not know the pool: the engine has it, and a pool ends when its last user is gone."""

    as_reset = False  # whether the next result of `recv` has the form of a reset

    def __init__(self, spec: PoolSpec) -> None:
        _, self._convert = shown_observation(spec.observation_space)
        self._infos = [(key, one.shape or (), one.dtype) for key, one in spec.info_space.items()]

    def parts(self, obs: Any, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Observations and infos as EnvPool has them."""
        if self._convert is not None:
            obs = self._convert(obs)
        for key, shape, dtype in self._infos:
            if key not in info:  # no row has it: all of them begin an episode
                info[key] = np.zeros((len(info["env_id"]), *shape), dtype)
        return obs, info

    def begun(self, result: Any) -> tuple[Any, dict[str, Any]]:
        """What ``reset`` returns."""
        return self.parts(*result)

    def stepped(self, result: Any) -> tuple[Any, ...]:
        """What ``step`` returns."""
        obs, reward, terminated, truncated, info = result
        obs, info = self.parts(obs, info)
        if self.as_reset:
            self.as_reset = False
            return obs, info
        return obs, reward, terminated, truncated, info
