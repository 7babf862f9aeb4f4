"""What is shown of one env: its picture, from ``render()`` or from the observations; observation and infos as texts.

The texts are made in the thread that uses the pool: of large values only the beginning is formatted. What a user's own
``__repr__`` takes is for the caller to count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium import spaces

from stepmill.errors import summary
from stepmill.hosts.frames import picture_of
from stepmill.hosts.host import Host
from stepmill.system.uninterrupted import try_or
from stepmill.values.trees import leaves, paths

_MOST_TEXT = 1000  # of one value
_MOST_LINES = 60
_MOST_ENTRIES = 20  # of a list, a dict and the like
_MOST_DEPTH = 3
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), dict: ("{", "}")}
_OURS = {"env_id", "elapsed_step", "players", "final_obs", "final_info"}
_DRAWN = ("rgb_array", "rgb_array_list", "depth_array", "depth_array_list", "ansi", "ansi_list")

Path = tuple[Any, ...]


# ---- pictures ------------------------------------------------------------------------------------


class Pictures(NamedTuple):
    """What can be shown of the envs of a pool, and what to do to see more."""

    any: bool
    note: str
    path: Path | None = None  # of the observations that are pictures, if these are shown

    @classmethod
    def of(cls, host: Host) -> Self:
        """What can be shown of the envs that live there."""
        if host.render_mode in _DRAWN:
            return cls(True, "")
        if host.render_mode is not None:
            return cls(False, f"There are no pictures in render_mode={host.render_mode!r}: the envs show themselves.")
        modes = host.metadata.get("render_modes") or ()
        better = 'make(…, render_mode="rgb_array")' if "rgb_array" in modes else ""
        path = _path_of_picture(host.observation.space)
        if path is not None:
            return cls(True, "These are the observations." + (f" {better} shows the envs." if better else ""), path)
        if better:
            return cls(False, f"There are no pictures: make the pool with {better} to see the envs.")
        return cls(False, "These envs do not offer pictures (there is no render_mode 'rgb_array').")

    @property
    def of_observations(self) -> bool:
        """Whether observations are shown."""
        return self.path is not None

    def read(self, env_id: int, obs: Any, info: dict[str, Any]) -> np.ndarray:
        """The observation of an env that is a picture."""
        for key in self.path or ():
            obs = obs[key]
        picture: np.ndarray = obs[row_of(env_id, info)]
        return picture


def row_of(env_id: int, info: dict[str, Any]) -> int:
    """The row of an env in the observations of a batch; with several players, the row of the first."""
    players = info.get("players")
    ids = info["env_id"] if players is None else players["env_id"]
    if len(ids) > env_id and ids[env_id] == env_id:
        return env_id
    return int(np.flatnonzero(ids == env_id)[0])


def _path_of_picture(space: Any) -> Path | None:
    """The keys that lead to the first part of a space that is a picture."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        children = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, child in children:
            path = _path_of_picture(child)
            if path is not None:
                return (key, *path)
        return None
    is_box = isinstance(space, spaces.Box) and (space.dtype == np.uint8 or len(space.shape) == 3)
    return () if is_box and picture_of(np.zeros(space.shape, space.dtype)) is not None else None


# ---- texts ---------------------------------------------------------------------------------------


def details_of(env_id: int, obs: Any, info: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """What an env in a batch shows: names and values, both as texts that may contain anything."""
    row = int(np.flatnonzero(info["env_id"] == env_id)[0])
    return {"observation": _observation(env_id, obs, info), "info": list(islice(_infos(info, row), _MOST_LINES))}


def _observation(env_id: int, obs: Any, info: dict[str, Any]) -> list[tuple[str, str]]:
    def named() -> list[tuple[str, str]]:
        row = row_of(env_id, info)
        parts = zip(leaves(paths(obs, "", _dotted)), leaves(obs), strict=True)
        return [(name, _text(part[row])) for name, part in islice(parts, _MOST_LINES)]

    # The arrays of players of different kinds have rows of their own.
    return try_or(named, lambda error: [("", f"cannot be shown: {summary(error)}")])


def _dotted(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _infos(info: Mapping[str, Any], row: int, prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, values in info.items():
        name = str(key)
        if name.startswith("_") or (not prefix and name in _OURS):
            continue
        present = info.get(f"_{name}")
        if present is not None and not present[row]:
            continue
        if isinstance(values, Mapping):
            yield from _infos(values, row, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _text(values[row])


def _text(value: Any) -> str:
    """The value, or why an object of the user's has no text."""
    return try_or(lambda: _shown(value)[:_MOST_TEXT], lambda error: f"cannot be shown: {summary(error)}")


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        if value.ndim > 1 and value.size > 64:
            return f"{value.dtype} array of shape {value.shape}"
        if value.dtype == object:
            return _beginning(value.tolist())
        return np.array2string(value, precision=4, threshold=64, max_line_width=60, suppress_small=True)
    if isinstance(value, str):
        return value[:_MOST_TEXT]
    return str(value) if isinstance(value, np.generic) else _beginning(value)


def _beginning(value: Any, depth: int = _MOST_DEPTH) -> str:
    """The beginning of what ``repr`` would write: the first entries."""
    if isinstance(value, str | bytes | bytearray):
        return repr(value[:_MOST_TEXT])
    if type(value) not in _BRACKETS or not value:
        return repr(value)
    left, right = _BRACKETS[type(value)]
    if depth == 0:
        return f"{left}...{right}"
    if isinstance(value, dict):
        entries = (f"{_beginning(key, depth - 1)}: {_beginning(one, depth - 1)}" for key, one in value.items())
    else:
        entries = (_beginning(one, depth - 1) for one in value)
    shown = list(islice(entries, _MOST_ENTRIES))
    if len(value) > len(shown):
        shown.append(f"... {len(value):,} in all")
    comma = "," if type(value) is tuple and len(value) == 1 else ""
    return f"{left}{', '.join(shown)}{comma}{right}"
