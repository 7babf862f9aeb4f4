"""Two agents: runners who must get out by two gates before a hunter catches them.

``PursuitEnv`` is a ``BaseEnv``; ``stepmill.zoo.pursuit_parallel`` has the same world as a PettingZoo env.
"""

from stepmill.zoo.pursuit.env import PursuitEnv

__all__ = ["PursuitEnv"]
