"""The envs that come with stepmill: one file per family. Each registers its ids when it is imported."""

from stepmill.zoo import classic, debug, dm_control, mujoco, toy, worlds

__all__ = ["classic", "debug", "dm_control", "mujoco", "toy", "worlds"]
