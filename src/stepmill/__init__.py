"""stepmill runs many reinforcement-learning environments at once.

>>> import stepmill
>>> pool = stepmill.make("CartPole-v1", num_envs=4)
>>> obs, info = pool.reset()
>>> obs.shape
(4, 4)
>>> pool.close()

Public are the names in ``__all__`` of this package and of the modules that docs/interface.md lists under "Modules".
Every other module is internal: it may change or move in any version.
"""

import importlib
from types import ModuleType

from stepmill import errors, zoo
from stepmill.errors import EnvError, StepmillError
from stepmill.listing import list_all_envs
from stepmill.make import make, make_dm, make_gym, make_gymnasium, make_spec
from stepmill.numpy_parity import match_numpy
from stepmill.pool.rollout.result import Rollout
from stepmill.registry import register
from stepmill.spec import PoolSpec
from stepmill.verify import verify
from stepmill.verifying.results import Difference, Verification, Verifications

__all__ = [
    "Difference",
    "EnvError",
    "PoolSpec",
    "Rollout",
    "StepmillError",
    "Verification",
    "Verifications",
    "__version__",
    "errors",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
    "register",
    "verify",
    "zoo",
]

__version__ = "0.1.0"

# Public too, but imported only when they are used: `import stepmill` stays cheap.
_PARTS = ("arguments", "envs", "interop", "managers", "testing", "wrappers")


def __getattr__(name: str) -> ModuleType:
    if name in _PARTS:
        return importlib.import_module(f"stepmill.{name}")
    raise AttributeError(f"module 'stepmill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PARTS])


match_numpy()
