"""JAX arrays of arrays that a pool leaves to numpy: the infos of ``make(..., output="jax")``."""

from __future__ import annotations

from typing import Any

from stepmill.interop.nested import convert_nested
from stepmill.views.outputs import to_jax

__all__ = ["as_jax_arrays"]


def as_jax_arrays(value: Any) -> Any:
    """Numbers in arrays, however deeply nested, as JAX arrays on the CPU: of an info, or of a part of it.

    Dicts, lists, tuples and arrays of objects (such as ``info["final_obs"]``) keep their form; texts, None and other
    objects stay as they are. The types are those of ``output="jax"``.
    """
    return convert_nested(to_jax(user="as_jax_arrays"), value)
