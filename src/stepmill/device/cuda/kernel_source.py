"""The source of a kernel: an env class, and the form of its rows (``cpp/gpu/kernel.h``)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from stepmill.settings import ActionBounds, Autoreset
from stepmill.values.spaces import ArrayLeaf, LeafKind

_TYPES = {
    "bool": "bool",
    "int8": "std::int8_t",
    "uint8": "std::uint8_t",
    "int16": "std::int16_t",
    "uint16": "std::uint16_t",
    "int32": "std::int32_t",
    "uint32": "std::uint32_t",
    "int64": "std::int64_t",
    "uint64": "std::uint64_t",
    "float32": "float",
    "float64": "double",
}
_MODES: dict[Autoreset, str] = {
    "next_step": "SM_NEXT_STEP",
    "same_step": "SM_SAME_STEP",
    "disabled": "SM_DISABLED",
}
_OUTSIDE: dict[ActionBounds, str] = {"error": "kIsBad", "clip": "kIsClipped", "pass": "kIsPassedOn"}


def kernel_source(
    header: str,
    name: str,
    size: tuple[int, int],
    observation: Sequence[ArrayLeaf],
    action: Sequence[ArrayLeaf],
    info: Sequence[ArrayLeaf],
    autoreset: Autoreset,
    bounds: ActionBounds,
) -> str:
    """What is compiled.

    Args:
        header: What defines the class, as an include names it; empty if that is included before this.
        name: The class.
        size: Of its objects on the host, and their alignment.
        observation: The arrays of an observation.
        action: Those of an action.
        info: Those of the env's own infos.
        autoreset: The mode of the pool.
        bounds: What happens to actions outside of the bounds of a Box.
    """
    limits = [_limit(i, leaf, bounds) for i, leaf in enumerate(action)]
    include = f'#include "{header}"\n' if header else ""
    return f"""\
#include "gpu/prelude.h"
{include}#include "gpu/kernel.h"

static_assert(sizeof({name}) == {size[0]} && alignof({name}) == {size[1]},
              "an object of {name.removeprefix("::")} lies in memory in another way than on the host, where it has "
              "{size[0]} bytes: expected the same members on both, none of which an #if leaves out");

namespace stepmill::gpu::of_this_env {{
struct Form {{
  static constexpr sm_autoreset kAutoreset = {_MODES[autoreset]};
  using Observation = {_arrays(observation)};
  using Info = {_arrays(info)};
  using Action = {_arrays(action)};
  static bool put_in_space(void* const* action) {{
    return {" | ".join(limits)};
  }}
}};
}}  // namespace stepmill::gpu::of_this_env

STEPMILL_GPU_ENV({name}, stepmill::gpu::of_this_env::Form)
"""


def row_bytes(leaf: ArrayLeaf) -> int:
    """The size of an array's row."""
    return math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize


def _arrays(leaves: Sequence[ArrayLeaf]) -> str:
    return f"Arrays<{', '.join(str(row_bytes(leaf)) for leaf in leaves)}>"


def _limit(index: int, leaf: ArrayLeaf, bounds: ActionBounds) -> str:
    """An action array, put into its space."""
    outside = "kIsBad" if leaf.kind != LeafKind.BOX else _OUTSIDE[bounds]
    of = f"{_TYPES[leaf.dtype]}, Outside::{outside}, {math.prod(leaf.shape)}"
    return f"limit<{of}>(action[{index}], {_numbers(leaf.low)}, {_numbers(leaf.high)})"


def _numbers(values: Sequence[float]) -> str:
    return "{" + ", ".join(map(_number, values)) + "}"


def _number(value: float) -> str:
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}std::numeric_limits<double>::infinity()"
    return value.hex()
