"""The envs that come with stepmill: one file per family. Each registers its ids when it is imported."""

from stepmill.zoo import classic, debug, mujoco, toy, worlds

__all__ = ["classic", "debug", "mujoco", "toy", "worlds"]
