"""Trees of arrays for DI-engine's middlewares.

A tree is built from its storage, with leaves that are arrays already: ``treetensor``'s own constructor maps a function
over the leaves, and takes fifty times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import treetensor.numpy as tnp  # type: ignore[import-not-found]
from treevalue import TreeValue  # type: ignore[import-not-found]
from treevalue.tree.common import create_storage  # type: ignore[import-not-found]

from stepmill.envs.timestep import BaseEnvTimestep, more_fields
from stepmill.errors import ActionError
from stepmill.managers.env_rows import any_abnormal

__all__ = ["action_rows", "numbers_of", "stacked", "timestep_tree"]


def timestep_tree(env_id: int, timestep: BaseEnvTimestep) -> Any:
    """A timestep as a tree, which also has the id of its env."""
    info = _as_dicts(tuple(timestep.info)) if isinstance(timestep.info, list | tuple) else timestep.info
    abnormal = any_abnormal(timestep.info)
    return _tree(
        {
            **numbers_of(more_fields(timestep)),
            "obs": _as_dicts(timestep.obs),
            "reward": timestep.reward,
            "done": np.array(timestep.done and not abnormal),
            "info": numbers_of(info) if info else {},
            "env_id": np.array(env_id),
        }
    )


def stacked(observations: Sequence[Any]) -> Any:
    """Observations of several envs as one, with one row per env: an array, or a tree of arrays."""
    first = _as_dicts(observations[0])
    if not isinstance(first, dict):
        return np.array(observations)
    return _tree(_stack([_as_dicts(one) for one in observations]))


def _stack(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {key: _stack([one[key] for one in parts]) for key in parts[0]}
    return np.array(parts)


def _tree(content: dict[str, Any]) -> Any:
    return tnp.ndarray(create_storage(content))


def _as_dicts(value: Any) -> Any:
    """Tuples as dicts, since a tree holds only dicts and arrays."""
    if isinstance(value, dict):
        return {key: _as_dicts(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return {f"_{i}": _as_dicts(child) for i, child in enumerate(value)}
    return value


# ---- actions -------------------------------------------------------------------------------------


def action_rows(actions: Any) -> list[Any]:
    """One action per env, from a list, an array with one row per env, or a tree of such arrays."""
    if isinstance(actions, TreeValue):
        return _rows_of(actions.json())
    try:
        rows = list(actions)
    except TypeError:
        raise ActionError(
            f"step: expected a list of actions, or an array with one row per env, got {actions!r}"
        ) from None
    return [one.json() if isinstance(one, TreeValue) else one for one in rows]


def _rows_of(actions: dict[str, Any]) -> list[Any]:
    columns = {key: _rows_of(value) if isinstance(value, dict) else list(value) for key, value in actions.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# ---- info ----------------------------------------------------------------------------------------


def numbers_of(info: dict[Any, Any]) -> dict[str, Any]:
    """The parts of an info that can be tensors, under names that can be attributes."""
    out = {}
    for key, value in info.items():
        found = numbers_of(value) if isinstance(value, dict) else _numbers(value)
        if found is not None:
            out[_as_name(str(key))] = found
    return out


def _as_name(key: str) -> str:
    """DI-engine's name for a key: ``TimeLimit.truncated`` is ``TimeLimit_truncated``."""
    return ("_" if key[:1].isdigit() else "") + key.replace(".", "_")


def _numbers(value: Any) -> np.ndarray | None:
    """A copy of it as an array that torch takes; None if there is no such array."""
    if value is None or isinstance(value, str | bytes):
        return None
    try:
        array = np.asarray(value)
    except Exception:  # lists of different lengths; tensors on a device; whatever an object's __array__ raises
        return None
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind not in "biufc" or size > (16 if kind == "c" else 8):
        return None
    return np.array(array, array.dtype.newbyteorder("="), order="C")
