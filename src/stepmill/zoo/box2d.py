"""Gymnasium's envs that need Box2D, which its own registry has whether or not Box2D is installed."""

from stepmill.registry.records import Family, add_family
from stepmill.system.optional import BOX2D

_NAMES = ("LunarLander", "LunarLanderContinuous", "BipedalWalker", "BipedalWalkerHardcore", "CarRacing")

add_family(Family(BOX2D, tuple(rf"{name}-v\d+" for name in _NAMES), example="LunarLander-v3", at_least=5))
