"""Courier: a drone carries packages across a small town, and must not run out of battery.

A worked example of a larger env made of elements and runners, one folder:

========================  =========================================================================
``config.py``             what can be configured, checked
``world.py``              the simulator: verbs in, events out; knows nothing of agents
``town.py``               draws the town of an episode, and sees to it that the work can be done
``observation.py``        elements and runners: a vector of features, a map around the drone
``action.py``             element and runner: a number of the agent becomes a verb
``reward.py``             elements: delivery, progress, battery, step cost, and the score
``reward_runner.py``      their runners
``env.py``                puts them together: ``CourierEnv``, a ``BaseEnv``
``drawing.py``            the picture (``sprites.py``, ``lettering.py``)
========================  =========================================================================
"""

from stepmill.zoo.courier.config import CourierConfig
from stepmill.zoo.courier.env import CourierEnv

__all__ = ["CourierConfig", "CourierEnv"]
