"""Spaces and values in a few words, and as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

__all__ = ["json_value", "space_document", "space_lines"]

_FEW = 6  # numbers that a line shows one by one


def space_lines(space: spaces.Space[Any]) -> list[str]:
    """A line for a plain space; one for each entry of a Dict or a Tuple, indented."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        entries = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        lines = [f"{type(space).__name__} of {len(space)}"]
        for key, one in entries:
            first, *rest = space_lines(one)
            lines += [f"  {key}: {first}", *(f"  {line}" for line in rest)]
        return lines
    if isinstance(space, spaces.Box):
        return [f"Box{space.shape} {space.dtype}, {_bounds(space)}"]
    return [" ".join(str(space).split())]


def _bounds(space: spaces.Box) -> str:
    low, high = _one_or_all(space.low), _one_or_all(space.high)
    if isinstance(low, list) and isinstance(high, list) and len(low) > _FEW:
        return "each number with its own bounds"
    if low == -math.inf and high == math.inf:
        return "without bounds"
    return f"from {_few(low)} to {_few(high)}"


def _few(bound: Any) -> str:
    if not isinstance(bound, list):
        return f"{bound:.6g}"
    return f"[{', '.join(f'{one:.6g}' for one in bound)}]" if len(bound) <= _FEW else "bounds that vary"


def _one_or_all(bounds: np.ndarray) -> Any:
    """A number if all are the same, else the list of them."""
    numbers = bounds.ravel()
    return numbers[0].item() if numbers.size and (numbers == numbers[0]).all() else numbers.tolist()


def space_document(space: spaces.Space[Any]) -> dict[str, Any]:
    """The space as JSON has it; bounds that are all the same are one number."""
    document: dict[str, Any] = {"type": type(space).__name__, "text": " ".join(space_lines(space))}
    if isinstance(space, spaces.Dict):
        return {**document, "spaces": {str(key): space_document(one) for key, one in space.items()}}
    if isinstance(space, spaces.Tuple):
        return {**document, "spaces": [space_document(one) for one in space]}
    document |= {"shape": space.shape, "dtype": None if space.dtype is None else str(space.dtype)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _one_or_all(space.low), "high": _one_or_all(space.high)}
        document |= {name: json_value(bound) for name, bound in bounds.items()}
    if isinstance(space, spaces.Discrete):
        document |= {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        document |= {"nvec": space.nvec.tolist()}
    return document


def json_value(value: Any, text_of: Callable[[Any], str] = repr) -> Any:
    """What JSON has no form for, such as an infinity, is a text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): json_value(one, text_of) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one, text_of) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else text_of(value)
