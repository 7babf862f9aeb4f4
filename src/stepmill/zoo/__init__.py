"""The envs that come with stepmill: one file per family, each registers its ids when imported."""

from stepmill.zoo import classic, debug, toy, worlds

__all__ = ["classic", "debug", "toy", "worlds"]
