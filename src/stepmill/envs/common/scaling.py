"""From one range of numbers to another, and back.

They take arrays, or what numpy turns into one, and return float32 arrays. Data that is not numeric is an
``InputError``, other invalid arguments are a ``ConfigError``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stepmill.errors import ConfigError, InputError, StepmillError
from stepmill.values.casting import as_numbers

__all__ = ["affine_transform", "div_func", "inverse_affine_transform"]


def div_func(inputs: Any, other: Any, unsqueeze_dim: int | None = 1) -> np.ndarray:
    """``inputs / other`` with a new axis of length 1 at ``unsqueeze_dim`` (None for none): one feature per column."""
    divisor = _numbers("div_func: other", other, ConfigError)
    if np.any(divisor == 0):
        raise ConfigError(f"div_func: expected a divisor other than 0, got {other!r}")
    values = _numbers("div_func: inputs", inputs)
    if unsqueeze_dim is not None:
        if not isinstance(unsqueeze_dim, int | np.integer) or not -values.ndim - 1 <= unsqueeze_dim <= values.ndim:
            raise ConfigError(
                f"div_func: unsqueeze_dim: expected one from {-values.ndim - 1} to {values.ndim} for inputs of shape "
                f"{values.shape}, got {unsqueeze_dim!r}"
            )
        values = np.expand_dims(values, unsqueeze_dim)
    _check_fit("div_func", inputs=values, other=divisor)
    return np.asarray(values / divisor, np.float32)


def affine_transform(
    data: Any,
    action_clip: bool = False,
    alpha: Any = None,
    beta: Any = None,
    min_val: Any = None,
    max_val: Any = None,
) -> np.ndarray:
    """``alpha * data + beta``, or from ``[-1, 1]`` to ``[min_val, max_val]``: from an agent's action to the env's.

    Args:
        data: An array, usually within ``[-1, 1]``.
        action_clip: Whether to clip the data to ``[-1, 1]`` first.
        alpha: The factor; a number, or an array with one for each element. Give it, or the two bounds.
        beta: The offset; 0 by default.
        min_val: What -1 becomes; a number, or an array such as a space's ``low``.
        max_val: What 1 becomes.
    """
    factor, offset = _factor_and_offset("affine_transform", alpha, beta, min_val, max_val)
    values = _numbers("affine_transform: data", data)
    _check_fit("affine_transform", data=values, factor=factor, offset=offset)
    if action_clip:
        values = np.clip(values, -1.0, 1.0)
    return np.asarray(values * factor + offset, np.float32)


def inverse_affine_transform(
    data: Any, alpha: Any = None, beta: Any = None, min_val: Any = None, max_val: Any = None
) -> np.ndarray:
    """The inverse of ``affine_transform`` with the same arguments (apart from clipping)."""
    factor, offset = _factor_and_offset("inverse_affine_transform", alpha, beta, min_val, max_val)
    if np.any(factor == 0):
        raise ConfigError("inverse_affine_transform: expected a transform that has an inverse, got a factor of 0")
    values = _numbers("inverse_affine_transform: data", data)
    _check_fit("inverse_affine_transform", data=values, factor=factor, offset=offset)
    return np.asarray((values - offset) / factor, np.float32)


def _factor_and_offset(owner: str, alpha: Any, beta: Any, min_val: Any, max_val: Any) -> tuple[np.ndarray, np.ndarray]:
    """In float64: 1 must become ``max_val`` itself, not a neighbouring float32 outside the space."""
    if (min_val is None) != (max_val is None) or (alpha is None) == (min_val is None):
        given = {"alpha": alpha, "beta": beta, "min_val": min_val, "max_val": max_val}
        names = [name for name, value in given.items() if value is not None]
        raise ConfigError(
            f"{owner}: expected alpha (and beta), or min_val and max_val, got {', '.join(names) or 'none'}"
        )
    if alpha is not None:
        beta = 0.0 if beta is None else beta
        return _numbers(f"{owner}: alpha", alpha, ConfigError), _numbers(f"{owner}: beta", beta, ConfigError)
    if beta is not None:
        raise ConfigError(f"{owner}: expected no beta beside min_val and max_val, got {beta!r}")
    low, high = (
        _numbers(f"{owner}: {name}", bound, ConfigError) for name, bound in (("min_val", min_val), ("max_val", max_val))
    )
    _check_fit(owner, min_val=low, max_val=high)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.all(low <= high)):
        raise ConfigError(f"{owner}: expected finite bounds, min_val <= max_val, got {min_val!r} and {max_val!r}")
    return (high - low) / 2.0, (high + low) / 2.0


def _numbers(name: str, value: Any, error: type[StepmillError] = InputError) -> np.ndarray:
    array = as_numbers(value)
    if array is None:
        raise error(f"{name}: expected numbers, got {value!r}")
    return array.astype(np.float64, copy=False)


def _check_fit(owner: str, **arrays: np.ndarray) -> None:
    try:
        np.broadcast(*arrays.values())
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ConfigError(f"{owner}: expected shapes that fit each other, got {shapes}") from None
