"""What a pool hands out: arrays of numpy, as the engine makes them, or the same memory as torch's or JAX's.

Observations, rewards and flags are converted, each where it stands in the result of the view. Infos stay numpy's.

This runs inside the engine (``show_as``), like the translation of a view: if a signal handler raises here, the batch is
not lost. A converter gets all arrays of a batch at once: what has to be done once per batch, such as waiting for a copy
to another device, has its place there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from stepmill import _native
from stepmill.errors import UnsupportedError
from stepmill.optional import JAX, TORCH, require
from stepmill.spaces import FlatSpace
from stepmill.trees import leaves, map_trees, paths, tree_of

__all__ = ["CONVERTERS", "Converter", "Output", "to_jax", "to_torch"]


class Converter(NamedTuple):
    """Makes arrays of another library from those of numpy."""

    convert: Callable[[tuple[Any, ...]], Iterable[Any]]
    skips_others: bool = False  # whether things that are not arrays may stand between the arrays, and stay as they are


def to_torch(user: str = "output='torch'") -> Converter:
    """Tensors over the memory of arrays, which they keep alive."""
    torch = require(*TORCH, user)
    api = _exchange_api(torch)
    if api is not None:
        return Converter(_native.TensorMaker(api).convert, skips_others=True)
    from_numpy = torch.from_numpy
    return Converter(lambda arrays: [from_numpy(array) for array in arrays])


def _exchange_api(torch: ModuleType) -> Any:
    """The C functions that torch offers for DLPack; None in older versions, which do not have them."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def to_jax(user: str = "output='jax'") -> Converter:
    """JAX arrays on the CPU, over the memory of arrays wherever JAX can use it: at addresses that 64 divides.

    Without ``jax_enable_x64``, 64-bit numbers become 32-bit ones, as everywhere in JAX.
    """
    jax = require(*JAX, user)
    try:
        cpu = jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise UnsupportedError(
            f"{user} makes arrays on the CPU, and JAX was told to do without it: {error}. "
            "Add cpu to JAX_PLATFORMS, such as JAX_PLATFORMS=cuda,cpu"
        ) from error
    # One call for the whole batch takes half the time of `jax.dlpack.from_dlpack` for each array.
    return Converter(lambda arrays: jax.device_put(arrays, cpu, may_alias=True))


# By the value of the setting.
CONVERTERS: dict[str, Callable[[], Converter]] = {"torch": to_torch, "jax": to_jax}


class Output:
    """Converts the arrays of a batch."""

    def __init__(self, name: str, observation: FlatSpace) -> None:
        self._convert, skips_others = CONVERTERS[name]()
        self._tree = observation.tree
        self._is_single = observation.tree == 0
        self._check_types(name, observation)
        # Converts a result that begins with the observation and ends with the info. Without a line of Python if it can.
        quick = self._is_single and skips_others
        self.before_info: Callable[[Any], Any] = self._convert if quick else self._before_info

    def __call__(self, observation: Any, *arrays: np.ndarray) -> tuple[Any, ...]:
        """The observation and the arrays, converted. Parts of observations that are Python objects stay so."""
        if self._is_single:
            return tuple(self._convert((observation, *arrays)))
        parts: list[np.ndarray] = []
        map_trees(lambda leaf, part: parts.append(part) if leaf >= 0 else None, self._tree, observation)
        made = iter(self._convert((*parts, *arrays)))
        shown = map_trees(lambda leaf, part: next(made) if leaf >= 0 else part, self._tree, observation)
        return shown, *made

    def _before_info(self, result: tuple[Any, ...]) -> tuple[Any, ...]:
        return *self(*result[:-1]), result[-1]

    def _check_types(self, name: str, observation: FlatSpace) -> None:
        spaces = tree_of(observation.space)
        for leaf, path, space in zip(
            leaves(self._tree), leaves(paths(spaces, "observation")), leaves(spaces), strict=True
        ):
            if leaf < 0:
                continue
            try:
                self._convert((np.empty(0, space.dtype),))
            except TypeError as error:
                raise UnsupportedError(
                    f"output={name!r}: {path} is of type {space.dtype}, which the installed {name} does not have "
                    f"({error}). Use a newer {name}, or output='numpy'"
                ) from error
