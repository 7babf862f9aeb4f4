"""Nested values to arrays and to tensors.

Dicts, lists, tuples and namedtuples keep their form, and their leaves become arrays; a list or tuple of only numbers
becomes one array. ``None``, ``bool`` (such as ``done`` of a timestep), text and empty lists stay unchanged. Without a
dtype, float64 becomes float32 and Python's numbers float32 or int64, as in envs; other arrays keep their type (but a
tensor of bfloat16, which numpy does not have, becomes an array of float32). The result shares no memory with the input.
What cannot be converted is an ``InputError``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from stepmill.errors import InputError
from stepmill.system.optional import TORCH, require


def to_ndarray(item: Any, dtype: DTypeLike | None = None) -> Any:
    """Arrays, numbers and torch tensors as arrays, also nested ones.

    Args:
        item: The value to convert.
        dtype: The dtype of all resulting arrays; None for the types of an env.
    """
    return _convert("to_ndarray", item, lambda leaf: _array(leaf, dtype))


def to_tensor(item: Any, dtype: Any = None) -> Any:
    """Arrays, numbers and torch tensors as torch tensors on the CPU, also nested ones.

    Args:
        item: The value to convert.
        dtype: The torch dtype of all resulting tensors; None for the types of an env.
    """
    torch = require(*TORCH, "to_tensor")

    def tensor(leaf: Any) -> Any:
        if _is_tensor(leaf):
            narrow = torch.float32 if leaf.dtype == torch.float64 else leaf.dtype
            return leaf.detach().cpu().to(dtype or narrow, copy=True)
        array = _array(leaf, None) if dtype is None else np.array(leaf)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False)).to(dtype)

    return _convert("to_tensor", item, tensor)


def _convert(owner: str, item: Any, leaf: Callable[[Any], Any]) -> Any:
    if item is None or isinstance(item, bool | str | bytes):
        return item
    if isinstance(item, Mapping):
        return {key: _convert(owner, child, leaf) for key, child in item.items()}
    if isinstance(item, tuple | list):
        if hasattr(item, "_make"):  # a namedtuple: its fields stay separate
            return item._make(_convert(owner, child, leaf) for child in item)
        if item and all(isinstance(child, int | float | np.number | np.bool_) for child in item):
            return _converted(owner, item, leaf)
        return type(item)([_convert(owner, child, leaf) for child in item])
    if isinstance(item, np.ndarray | np.generic | int | float) or _is_tensor(item):
        return _converted(owner, item, leaf)
    raise InputError(
        f"{owner}: expected arrays, tensors, numbers, None, text, or dicts, lists and tuples of these, "
        f"got {item!r} of type {type(item).__name__}"
    )


def _converted(owner: str, item: Any, leaf: Callable[[Any], Any]) -> Any:
    try:
        return leaf(item)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{owner}: expected numbers that can be converted, got {item!r}: {error}") from error


def _array(leaf: Any, dtype: DTypeLike | None) -> np.ndarray:
    array = np.array(_numpy(leaf) if _is_tensor(leaf) else leaf, dtype)
    if array.dtype == object and not isinstance(leaf, np.ndarray):
        raise OverflowError("a number beyond 64 bits")
    return array.astype(np.float32) if dtype is None and array.dtype == np.float64 else array


def _numpy(tensor: Any) -> np.ndarray:
    tensor = tensor.detach().cpu()
    array: np.ndarray = (tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor).numpy()
    return array


def _is_tensor(item: Any) -> bool:
    torch = sys.modules.get("torch")  # if it was never imported, nothing is a tensor
    return torch is not None and isinstance(item, torch.Tensor)
