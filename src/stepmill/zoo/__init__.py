"""The envs that come with stepmill: one file per family. Each registers its ids when it is imported."""

from stepmill.zoo import (
    atari,
    classic,
    debug,
    dm_control,
    mujoco,
    robotics,
    toy,
    vizdoom,
    worlds,
)

__all__ = [
    "atari",
    "classic",
    "debug",
    "dm_control",
    "mujoco",
    "robotics",
    "toy",
    "vizdoom",
    "worlds",
]
