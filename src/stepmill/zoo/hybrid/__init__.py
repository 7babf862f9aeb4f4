"""Hybrid actions: accelerate with a power, turn by an angle, or brake, and stop in the target.

``MovingEnv`` and ``SlidingEnv`` are Gymnasium envs, ``HybridEnv`` is either of them as a ``BaseEnv``.
"""

from stepmill.zoo.hybrid.env import HybridEnv, MovingEnv, SlidingEnv

__all__ = ["HybridEnv", "MovingEnv", "SlidingEnv"]
