"""stepmill runs many reinforcement-learning environments at once.

>>> import stepmill
>>> pool = stepmill.make("CartPole-v1", num_envs=4)
>>> obs, info = pool.reset()
>>> obs.shape
(4, 4)
>>> pool.close()
"""

from stepmill import errors, zoo
from stepmill.errors import EnvError, StepmillError
from stepmill.make import make, make_dm, make_gym, make_gymnasium, make_spec
from stepmill.numerics import match_numpy
from stepmill.registry import list_all_envs, register
from stepmill.spec import PoolSpec

__all__ = [
    "EnvError",
    "PoolSpec",
    "StepmillError",
    "__version__",
    "errors",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
    "register",
    "zoo",
]

__version__ = "0.1.0"

match_numpy()
