"""Pursuit: two runners must get out through two gates before a hunter catches them.

An example of an env with many agents. ``python -m examples.worlds.pursuit`` in the root of the repository plays it.

==================  =============================================================================
``env.py``          the world, ``PursuitEnv``, a ``BaseEnv``, and its picture
``parallel.py``     the same world as a PettingZoo ``ParallelEnv``; needs PettingZoo
``canvas.py``       what the picture is painted with
``__main__.py``     checks the env, plays it alone and in a pool, and says what happened
==================  =============================================================================
"""

from .env import PursuitEnv

__all__ = ["PursuitEnv"]
