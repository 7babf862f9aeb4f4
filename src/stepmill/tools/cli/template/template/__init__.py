"""A boat crosses a river, and has to reach the landing stage on the far bank.

Read the files in this order, and replace them in this order to make it a world of your own:

- ``config.py``: what can be chosen, with defaults and checks;
- ``world.py``: the simulator; it knows nothing about agents;
- ``action.py``, ``observation.py``, ``reward.py``: what an agent does, sees and is paid for;
- ``env.py``: puts them together;
- ``policy.py``: an agent that knows the rules, to see that the task can be done.
"""

from .config import TemplateConfig
from .env import TemplateEnv

__all__ = ["TemplateConfig", "TemplateEnv"]
