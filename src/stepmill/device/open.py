"""From a world, or from native envs, to a pool on a device."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from stepmill import _native
from stepmill.device.devices import jax_device, torch_gpu
from stepmill.errors import ResourceError, UnsupportedError
from stepmill.settings import Settings
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.sources.world_source import WorldSource
from stepmill.system.optional import TORCH, require
from stepmill.values.spaces import ArrayLeaf, FlatSpace, LeafKind, flatten


def settings_for(source: WorldSource, settings: Settings) -> Settings:
    """The settings of a pool of a world. Raises if one of them is not for such a pool."""
    _refuse(source, settings)
    if settings.output == "numpy":
        return settings
    return replace(settings, reward_dtype="float32")  # as everywhere in JAX


def open_device_pool(source: WorldSource, settings: Settings) -> Any:
    """A pool of envs of a world, which takes the place of an engine."""
    device = jax_device(settings.device, source.id)
    from stepmill.device.device_pool import DevicePool
    from stepmill.device.functional import WorldRules
    from stepmill.device.jax_program import JaxProgram
    from stepmill.device.jax_results import JaxResults

    if settings.output == "torch":
        require(*TORCH, "output='torch'")
    rules = WorldRules(source.world, settings.num_envs, settings.autoreset, source.max_episode_steps)
    observation, action = flatten(source.observation_space), flatten(source.action_space)
    program = JaxProgram(rules, action, settings.action_bounds, device, settings.seed)
    results = JaxResults(observation, settings, program)
    return DevicePool(source, settings, program, results, observation, action)


def _refuse(source: WorldSource, settings: Settings) -> None:
    why = _unfit(settings, "a compiled program")
    if why is None and settings.max_num_players not in (None, 1):
        why = "max_num_players: each env has one player: leave it out"
    if why is not None:
        raise UnsupportedError(f"{source.id} is a JAX world: {why}")


def _unfit(settings: Settings, what: str) -> str | None:
    """Which of the settings is for envs that move one by one, and why; ``what`` moves these."""
    if settings.is_async:
        return "batch_size: all envs move together: expected num_envs, which is the default"
    if settings.only_processes is not None:
        return f"{settings.only_processes}: there are no worker processes: leave it out"
    if settings.on_error != "raise":
        return f"on_error: {what} raises nothing: leave it out"
    return None


# ---- envs on a GPU ---------------------------------------------------------------------------------


def settings_on_gpu(source: NativeSource | PythonSource, settings: Settings) -> Settings:
    """The settings of a pool on a GPU. Raises if one of them, or the env, is not for such a pool."""
    _refuse_on_gpu(source, settings)
    device = "cuda" if settings.device == "cpu" else settings.device
    return replace(settings, device=device, reward_dtype="float32")


def open_cuda_pool(source: NativeSource, settings: Settings) -> Any:
    """A pool of native envs on a GPU, which takes the place of an engine."""
    from stepmill.device.cuda import driver
    from stepmill.device.cuda.cuda_program import CudaProgram
    from stepmill.device.cuda.cuda_results import CudaResults
    from stepmill.device.cuda.kernel import class_of, kernel_for
    from stepmill.device.device_pool import DevicePool

    env_class = class_of(source)
    gpu, stream = _gpu_and_stream(settings)
    try:
        architecture = _native.gpu_architecture(driver.LIBRARY, gpu)
    except (RuntimeError, ResourceError) as error:
        raise UnsupportedError(f"backend='cuda': {error}. nvidia-smi lists the GPUs of this machine") from error
    if architecture < _LEAST_ARCHITECTURE:
        raise UnsupportedError(
            f"backend='cuda': GPU {gpu} has compute capability {architecture / 10}: expected at least "
            f"{_LEAST_ARCHITECTURE / 10}"
        )
    if driver.is_real():
        _refuse_blind_library(settings)
    described = _native.describe(source.env_class, source.configs[0], None)
    if not described["is_plain_memory"]:
        raise UnsupportedError(
            f"backend='cuda': {source.id} cannot be copied to a GPU: its class does not say kPlainMemory. If none of "
            "its members is a pointer, put `static constexpr bool kPlainMemory = true;` into it, under public; "
            "otherwise use backend='thread'"
        )
    leaves = {role: [_leaf_of(one) for one in described[role]] for role in ("observation", "action", "info")}
    _refuse_arrays(source, leaves)
    # In the order in which the class describes them, which need not be that of the keys of a Dict.
    observation = FlatSpace(source.observation_space, source.observation_tree, leaves["observation"], [])
    action = FlatSpace(source.action_space, source.action_tree, leaves["action"], [])
    image = kernel_for(source, env_class, settings, described, leaves, architecture)
    program = CudaProgram(source, settings, leaves["action"], image, gpu, stream)
    results = CudaResults(observation, [one.name for one in leaves["info"]], settings, program)
    return DevicePool(source, settings, program, results, observation, action)


_LEAST_ARCHITECTURE = 80


def _gpu_and_stream(settings: Settings) -> tuple[int, Callable[[], int]]:
    """The number of the GPU, and what tells which stream is the caller's."""
    _, _, number = settings.device.partition(":")
    gpu = int(number or 0)
    if settings.output != "torch":
        return gpu, lambda: 0
    torch = require(*TORCH, "output='torch'")
    if not torch.cuda.is_available():
        return gpu, lambda: 0  # nobody has a stream
    if not number:
        gpu = int(torch.cuda.current_device())
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if raw is not None:
        return gpu, functools.partial(raw, gpu)
    return gpu, lambda: int(torch.cuda.current_stream(gpu).cuda_stream)


def _refuse_blind_library(settings: Settings) -> None:
    """Raises if the library whose arrays results are finds no GPU."""
    if settings.output == "torch":
        torch_gpu(require(*TORCH, "output='torch'"), settings.device)
    elif settings.output == "jax":
        jax_device(settings.device, "output='jax'")


def _refuse_on_gpu(source: NativeSource | PythonSource, settings: Settings) -> None:
    from stepmill.device.cuda.kernel import class_of

    why = _unfit(settings, "a kernel")
    if why is None:
        if isinstance(source, PythonSource):
            why = f"{source.id} is a Python env: use backend='process'"
        elif source.max_num_players != 1:
            why = f"{source.id} has several players, and a row there is that of one: use backend='thread'"
        elif source.render_mode is not None:
            why = "render_mode: envs on a GPU cannot be drawn: use backend='thread'"
        else:
            class_of(source)
    if why is not None:
        raise UnsupportedError(f"backend='cuda': {why}")


def _leaf_of(told: Mapping[str, Any]) -> ArrayLeaf:
    """An array that the class describes. One without elements may have no bounds."""
    bounds = told["low"] or [0.0], told["high"] or [0.0]
    return ArrayLeaf(told["name"], LeafKind(told["kind"]), told["dtype"], tuple(told["shape"]), *bounds)


def _refuse_arrays(source: NativeSource, leaves: Mapping[str, Sequence[ArrayLeaf]]) -> None:
    for role, arrays in leaves.items():
        if len(arrays) > _native.MOST_GPU_ARRAYS:
            what = "the infos have" if role == "info" else f"an {role} has"
            raise UnsupportedError(
                f"backend='cuda': {source.id}: {what} {len(arrays)} arrays: a kernel takes at most "
                f"{_native.MOST_GPU_ARRAYS}: put several into one, or use backend='thread'"
            )
    if any(one.dtype == "float16" for one in leaves["action"]):
        raise UnsupportedError(
            f"backend='cuda': {source.id}: an action has numbers in float16, with which a kernel cannot compute: "
            "expected float32 or float64, or backend='thread'"
        )
