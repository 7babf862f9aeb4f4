"""Which device a name means, such as ``"cuda:1"``, to JAX or torch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from stepmill.errors import UnsupportedError
from stepmill.system.optional import JAX, require


def number_in(device: str, library: str, count: int) -> int | None:
    """The number in the name of a device, if it has one. Raises if there is no such GPU."""
    _, _, number = device.partition(":")
    if int(number or 0) >= count:
        raise UnsupportedError(f"device={device!r}: {library} finds {count} GPUs, numbered from 0")
    return int(number) if number else None


def torch_gpu(torch: ModuleType, device: str) -> int:
    """The number of the GPU that ``device`` means to torch."""
    if not torch.cuda.is_available():
        built = "it was built without CUDA: install one that was" if torch.version.cuda is None else "see nvidia-smi"
        raise UnsupportedError(f"device={device!r}: torch {torch.__version__} finds no GPU: {built}")
    number = number_in(device, "torch", torch.cuda.device_count())
    return int(torch.cuda.current_device()) if number is None else number


def jax_device(device: str, user: str) -> Any:
    """The device of JAX of this name."""
    jax = require(*JAX, user)
    if device != "cpu":
        try:
            gpus = jax.local_devices(backend="cuda")
        except RuntimeError as error:
            raise UnsupportedError(
                f"device={device!r}: JAX finds no GPU: {error}. pip install 'jax[cuda13]' installs a JAX for CUDA"
            ) from error
        return gpus[number_in(device, "JAX", len(gpus)) or 0]
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise UnsupportedError(
            f"{user} makes arrays on the CPU, and JAX was told to do without it: {error}. "
            "Add cpu to JAX_PLATFORMS, such as JAX_PLATFORMS=cuda,cpu"
        ) from error
