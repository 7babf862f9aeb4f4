"""Gymnasium's spaces as TorchRL's specs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torchrl.data import Binary, Bounded, Categorical, MultiCategorical, MultiOneHot, OneHot, Unbounded

from stepmill.errors import SpaceError

__all__ = ["action_spec", "flags_spec", "observation_spec"]

# torch has these types, but can do next to nothing with them.
_WIDER = {"uint16": torch.int32, "uint32": torch.int64}

_WholeNumbers = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


def observation_spec(space: spaces.Space[Any], path: str) -> Any:
    """The spec of a leaf of an observation."""
    dtype = _dtype(space, path)
    if isinstance(space, spaces.Box):
        return _box_spec(space, dtype)
    return _spec_of_whole_numbers(space, dtype)


def action_spec(space: spaces.Space[Any], path: str, one_hot: bool) -> Any:
    """The spec of a leaf of an action."""
    dtype = _dtype(space, path)
    if isinstance(space, spaces.Box):
        spec = _box_spec(space, dtype)
        # A random action must be finite: where not all values have bounds, TorchRL draws from normal distributions.
        return spec if space.is_bounded() else Unbounded(spec.shape, dtype=spec.dtype)
    spec = _spec_of_whole_numbers(space, dtype)
    if one_hot and type(spec) is Categorical:  # not Binary, which is a subclass
        return OneHot(spec.n, dtype=torch.long)  # of the type that TorchRL's own envs take
    if one_hot and type(spec) is MultiCategorical:
        return MultiOneHot(spec.nvec.tolist(), dtype=torch.long)
    return spec


def flags_spec(*shape: int) -> Any:
    """The spec of bools, such as ``done``."""
    return Categorical(2, shape=torch.Size(shape), dtype=torch.bool)


def _box_spec(space: spaces.Box, dtype: torch.dtype) -> Any:
    shape = torch.Size(space.shape or (1,))  # TorchRL's networks want a dimension for features
    if dtype == torch.bool:
        return Binary(shape[-1], shape=shape, dtype=dtype)
    if dtype.is_floating_point and not (np.isfinite(space.low).any() or np.isfinite(space.high).any()):
        return Unbounded(shape, dtype=dtype)
    low, high = (torch.as_tensor(bound.tolist(), dtype=dtype).reshape(shape) for bound in (space.low, space.high))
    return Bounded(low, high, shape, dtype=dtype)


def _spec_of_whole_numbers(space: Any, dtype: torch.dtype) -> Any:
    if isinstance(space, spaces.MultiBinary):
        return Binary(space.shape[-1], shape=torch.Size(space.shape), dtype=dtype)
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Categorical(int(space.n), dtype=dtype)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not space.start.any():
        return MultiCategorical(space.nvec.tolist(), dtype=dtype)
    # TorchRL's categories begin at 0 and have one axis.
    count = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    low, high = torch.as_tensor(np.asarray(space.start)), torch.as_tensor(space.start + count - 1)
    return Bounded(low, high, torch.Size(space.shape or ()), dtype=dtype)


def _dtype(space: spaces.Space[Any], path: str) -> torch.dtype:
    """The type of the tensors of a leaf, if it can have any."""
    if not isinstance(space, spaces.Box | _WholeNumbers):
        raise SpaceError(
            f"{path}: expected Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these, got {space}: "
            "tensordicts have tensors only. Use a wrapper of the env that makes an array of it"
        )
    name = str(space.dtype)
    if name in _WIDER:
        return _WIDER[name]
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or name == "uint64":
        raise SpaceError(f"{path}: expected numbers of a type that torch can compute with, got {name}: {space}")
    return dtype
