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
from typing import TYPE_CHECKING, Any

from stepmill import errors, zoo
from stepmill._version import __version__
from stepmill.errors import EnvError, StepmillError
from stepmill.hosts.rollout.policy import per_env
from stepmill.hosts.rollout.result import Rollout
from stepmill.make import make, make_dm, make_gym, make_gymnasium, make_spec, resume
from stepmill.registry.listing import list_all_envs
from stepmill.registry.records import register
from stepmill.settings import Process, Ray
from stepmill.sources.files.compiler import get_include
from stepmill.sources.files.env_library import compile
from stepmill.sources.jit.jit_class import jit
from stepmill.spec import PoolSpec
from stepmill.system.numpy_parity import match_numpy
from stepmill.values.saved_states import SavedState, SavedStates

if TYPE_CHECKING:
    from stepmill.tools.verify.entry import verify
    from stepmill.tools.verify.results import Difference, Verification, Verifications

__all__ = [
    "Difference",
    "EnvError",
    "PoolSpec",
    "Process",
    "Ray",
    "Rollout",
    "SavedState",
    "SavedStates",
    "StepmillError",
    "Verification",
    "Verifications",
    "__version__",
    "compile",
    "errors",
    "get_include",
    "jit",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
    "per_env",
    "register",
    "resume",
    "verify",
    "zoo",
]

# Public too, but imported only when they are used: `import stepmill` stays cheap.
_PARTS = ("envs", "interop", "managers", "testing", "values", "views", "wrappers")


_OF_VERIFY = ("Difference", "Verification", "Verifications", "verify")


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"stepmill.{name}")
    if name in _OF_VERIFY:
        return getattr(importlib.import_module("stepmill.tools.verify.entry"), name)
    raise AttributeError(f"module 'stepmill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PARTS])


match_numpy()
