"""Courier: a drone carries packages across a small town, and must not run out of battery.

An example of a larger env made of elements and runners. ``python -m examples.worlds.courier`` in the root of the
repository plays it. There is one file per idea; read them in this order:

========================  =========================================================================
``config.py``             the configuration and its checks
``world.py``              the simulator: verbs in, events out; knows nothing about agents
``town.py``               draws the town of an episode, and makes sure that the work can be done
``action.py``             element and runner: a number of the agent becomes a verb
``observation.py``        elements and runners: a vector of features, a map around the drone
``reward.py``             elements and runners: delivery, progress, battery, step cost, and the score
``env.py``                puts them together: ``CourierEnv``, a ``BaseEnv``
``picture.py``            what ``render()`` returns (``sprites.py`` has its drawings)
``pilot.py``              a policy that knows the town
``__main__.py``           checks the env, plays it alone and in a pool, and says what happened
========================  =========================================================================
"""

from .config import CourierConfig
from .env import CourierEnv

__all__ = ["CourierConfig", "CourierEnv"]
