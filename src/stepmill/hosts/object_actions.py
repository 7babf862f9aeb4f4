"""The parts of actions that do not fit in arrays: values of Text, Sequence, Graph and custom spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stepmill.errors import ActionError
from stepmill.system.user_code import try_or
from stepmill.values.spaces import FlatSpace, object_leaves

__all__ = ["object_parts"]


def object_parts(flat: FlatSpace, action: Any, env_ids: Sequence[int]) -> dict[int, list[Any]]:
    """The object parts of each env's action, checked. ``action`` is what the user sent to these envs."""
    tree = flat.tree
    if isinstance(action, dict) and "action" in action and not (isinstance(tree, dict) and "action" in tree):
        action = action["action"]
    try:
        columns = list(object_leaves(tree, action))
    except (KeyError, TypeError, ValueError):
        raise ActionError(f"action: expected the parts of {flat.space}, got {action!r}") from None
    for space, column in zip(flat.object_spaces, columns, strict=True):
        if not isinstance(column, list | tuple | np.ndarray) or len(column) != len(env_ids):
            raise ActionError(f"action: expected a list of {len(env_ids)} values of {space}, got {column!r}")
        for env_id, value in zip(env_ids, column, strict=True):
            if not _contains(space, value):
                raise ActionError(f"action of env {env_id}: expected a value of {space}, got {value!r}")
    return {env_id: [column[i] for column in columns] for i, env_id in enumerate(env_ids)}


def _contains(space: Any, value: Any) -> bool:
    """Whether a space has a value. Some raise for a value that they do not have."""
    return try_or(lambda: bool(space.contains(value)), lambda _: False)
