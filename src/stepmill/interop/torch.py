"""Tensors of arrays that a pool leaves to numpy: the infos of ``make(..., output="torch")``."""

from __future__ import annotations

from typing import Any

from stepmill.interop.nested import convert_nested
from stepmill.views.outputs import to_torch

__all__ = ["as_tensors"]


def as_tensors(value: Any) -> Any:
    """Numbers in arrays, however deeply nested, as tensors: of an info, or of a part of it.

    Dicts, lists, tuples and arrays of objects (such as ``info["final_obs"]``) keep their form; texts, None and other
    objects stay as they are. Tensors share the memory of their arrays and keep it alive, except for arrays that are
    read-only (``info["env_id"]`` of a sync pool): torch has no such tensors, so these are copies.
    """
    return convert_nested(to_torch(user="as_tensors"), value)
