"""Where pictures of envs come from: ``render()``, or the observations, or nowhere."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium import spaces

from stepmill.hosts.frames import picture_of
from stepmill.hosts.host import Host

__all__ = ["Pictures", "row_of"]

_DRAWN = ("rgb_array", "rgb_array_list", "depth_array", "depth_array_list", "ansi", "ansi_list")

Path = tuple[Any, ...]


class Pictures(NamedTuple):
    """What can be shown of the envs of a pool, and what to do to see more."""

    any: bool
    note: str
    path: Path | None = None  # of the observations that are pictures, if these are shown

    @classmethod
    def of(cls, host: Host) -> Self:
        """Those of the envs that live there."""
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
    """The row of an env in the observations of a batch; with several players that of its first."""
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
