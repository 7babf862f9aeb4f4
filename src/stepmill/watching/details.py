"""What is known of one env besides its picture: its observation and its infos, as texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from stepmill.errors import summary
from stepmill.trees import leaves, paths
from stepmill.watching.pictures import row_of

__all__ = ["Details", "details_of"]

_MOST_TEXT = 1000  # of one value
_MOST_LINES = 60
_OURS = {"env_id", "elapsed_step", "players", "final_obs", "final_info"}


class Details(NamedTuple):
    """Names and values, both as texts that may contain anything."""

    observation: list[tuple[str, str]]
    info: list[tuple[str, str]]


def details_of(env_id: int, obs: Any, info: dict[str, Any]) -> Details:
    """Those of an env in a batch."""
    row = int(np.flatnonzero(info["env_id"] == env_id)[0])
    return Details(_observation(env_id, obs, info), list(_infos(info, row))[:_MOST_LINES])


def _observation(env_id: int, obs: Any, info: dict[str, Any]) -> list[tuple[str, str]]:
    try:
        row = row_of(env_id, info)
        named = zip(leaves(paths(obs, "", _dotted)), leaves(obs), strict=True)
        return [(name, _text(part[row])) for name, part in named][:_MOST_LINES]
    except Exception as error:  # the arrays of players of different kinds have rows of their own
        return [("", f"cannot be shown: {summary(error)}")]


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
    try:
        if isinstance(value, np.ndarray):
            if value.ndim > 1 and value.size > 64:
                return f"{value.dtype} array of shape {value.shape}"
            return np.array2string(value, precision=4, threshold=64, max_line_width=60, suppress_small=True)
        return (str(value) if isinstance(value, str | np.generic) else repr(value))[:_MOST_TEXT]
    except Exception as error:  # of an object of the user's
        return f"cannot be shown: {summary(error)}"
