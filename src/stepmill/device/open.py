"""From a world to a pool on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepmill.device.devices import jax_device
from stepmill.errors import UnsupportedError
from stepmill.settings import Settings
from stepmill.sources.world_source import WorldSource
from stepmill.system.optional import TORCH, require


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
    from stepmill.values.spaces import flatten

    if settings.output == "torch":
        require(*TORCH, "output='torch'")
    rules = WorldRules(source.world, settings.num_envs, settings.autoreset, source.max_episode_steps)
    program = JaxProgram(rules, flatten(source.action_space), settings.action_bounds, device, settings.seed)
    return DevicePool(source, settings, program)


def _refuse(source: WorldSource, settings: Settings) -> None:
    why = None
    if settings.is_async:
        why = "batch_size: they move together: expected num_envs, which is the default"
    elif settings.only_processes is not None:
        why = f"{settings.only_processes}: there are no worker processes: leave it out"
    elif settings.on_error != "raise":
        why = "on_error: a compiled program raises nothing: leave it out"
    elif settings.max_num_players not in (None, 1):
        why = "max_num_players: each has one player: leave it out"
    if why is not None:
        raise UnsupportedError(f"the envs of {source.id} are one program on a device, so {why}")
