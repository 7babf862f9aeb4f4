"""What a pool hands out: arrays of numpy, as the engine makes them, the same memory as torch's or JAX's, or a copy of
it on a GPU.

Observations, rewards and flags are converted, each where it stands in the result of the view. Infos stay numpy's.

This runs inside the engine (``show_as``), like the translation of a view: if a signal handler raises here, the batch is
not lost. A converter gets all arrays of a batch at once: some things are done once per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from stepmill import _native
from stepmill.device.devices import jax_device, torch_gpu
from stepmill.errors import UnsupportedError
from stepmill.system.optional import JAX, TORCH, require
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import leaves, map_trees, paths, tree_of
from stepmill.views.cuda_tensors import CudaTensors


class Converter(NamedTuple):
    """Makes arrays of another library from those of numpy."""

    convert: Callable[[tuple[Any, ...]], Iterable[Any]]
    skips_others: bool = False  # whether things that are not arrays may stand between the arrays, and stay as they are
    reader: int | None = None  # the GPU that reads the arrays by itself, some time after they were converted


def to_torch(device: str = "cpu", user: str = "output='torch'") -> Converter:
    """Tensors over the memory of arrays, which they keep alive; or on a GPU."""
    torch = require(*TORCH, user)
    if device != "cpu":
        gpu = torch_gpu(torch, device)
        return Converter(CudaTensors(torch, gpu).convert, reader=gpu)
    api = _exchange_api(torch)
    if api is not None:
        return Converter(_native.TensorMaker(api).convert, skips_others=True)
    from_numpy = torch.from_numpy
    return Converter(lambda arrays: [from_numpy(array) for array in arrays])


def _exchange_api(torch: ModuleType) -> Any:
    """The C functions that torch offers for DLPack; None in older versions, which do not have them."""
    return getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)


def to_jax(device: str = "cpu", user: str = "output='jax'") -> Converter:
    """JAX arrays over the memory of arrays wherever JAX can use it, at addresses that 64 divides; or on a GPU.

    Without ``jax_enable_x64``, 64-bit numbers become 32-bit ones, as everywhere in JAX.
    """
    place = jax_device(device, user)
    jax = require(*JAX, user)
    if device != "cpu":
        return Converter(lambda arrays: jax.device_put(arrays, place))
    # One call for the whole batch takes half the time of `jax.dlpack.from_dlpack` for each array.
    return Converter(lambda arrays: jax.device_put(arrays, place, may_alias=True))


# By the value of the setting. They take the device.
CONVERTERS: dict[str, Callable[[str], Converter]] = {"torch": to_torch, "jax": to_jax}


class Output:
    """Converts the arrays of a batch."""

    def __init__(self, name: str, converter: Converter, observation: FlatSpace) -> None:
        self._convert, skips_others, self.reader = converter
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
