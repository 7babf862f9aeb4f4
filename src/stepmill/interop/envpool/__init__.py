"""EnvPool's interface over our pools.

A program that was written for EnvPool 1.x changes one line::

    import stepmill.interop.envpool as envpool

docs/from-envpool.md says what else is different. For programs of EnvPool 0.x, whose steps return four results, there is
``stepmill.interop.envpool.legacy``.
"""

from __future__ import annotations

from typing import Any, Literal, NoReturn, overload

import stepmill.registry.listing
from stepmill.errors import UnsupportedError
from stepmill.interop.envpool.arguments import IDS, read
from stepmill.interop.envpool.pools import DMEnvPool, EnvPool, GymnasiumEnvPool
from stepmill.interop.envpool.spec import ArraySpec, EnvSpec
from stepmill.make import make_gym as make_pool
from stepmill.make import make_spec as make_pool_spec
from stepmill.values.arguments import one_of

__all__ = [
    "ArraySpec",
    "DMEnvPool",
    "EnvPool",
    "EnvSpec",
    "GymnasiumEnvPool",
    "__version__",
    "list_all_envs",
    "make",
    "make_dm",
    "make_gym",
    "make_gymnasium",
    "make_spec",
    "register",
]

__version__ = "1.2.7"  # the EnvPool whose interface this is


@overload
def make(task_id: Any, env_type: Literal["gym", "gymnasium"], **kwargs: Any) -> GymnasiumEnvPool: ...
@overload
def make(task_id: Any, env_type: Literal["dm"], **kwargs: Any) -> DMEnvPool: ...
def make(task_id: Any, env_type: str, **kwargs: Any) -> GymnasiumEnvPool | DMEnvPool:
    """Makes a pool.

    Args:
        task_id: An id, or anything else that ``stepmill.make`` takes.
        env_type: ``"gym"`` or ``"gymnasium"``, which are the same, or ``"dm"``.
        **kwargs: EnvPool's arguments and the env's own configuration. Those of ``stepmill.make`` work too.
    """
    one_of("env_type", env_type, ("dm", "gym", "gymnasium"))
    ours, extras = read(task_id, kwargs)
    view = DMEnvPool if env_type == "dm" else GymnasiumEnvPool
    return view.over(make_pool(**ours), extras=extras)


def make_gymnasium(task_id: Any, **kwargs: Any) -> GymnasiumEnvPool:
    """``make(task_id, "gymnasium", ...)``."""
    return make(task_id, "gymnasium", **kwargs)


def make_gym(task_id: Any, **kwargs: Any) -> GymnasiumEnvPool:
    """The same: EnvPool's ``gym`` has followed Gymnasium since version 1.0."""
    return make_gymnasium(task_id, **kwargs)


def make_dm(task_id: Any, **kwargs: Any) -> DMEnvPool:
    """``make(task_id, "dm", ...)``."""
    return make(task_id, "dm", **kwargs)


def make_spec(task_id: Any, **kwargs: Any) -> EnvSpec:
    """The spaces and the configuration of the pool that ``make`` would return, without making it."""
    ours, extras = read(task_id, kwargs)
    return EnvSpec(make_pool_spec(**ours, env_type="gym"), extras)


def list_all_envs() -> list[str]:
    """The ids that can be made here, those that only EnvPool has included."""
    ids = stepmill.registry.listing.list_all_envs()
    return sorted({*ids, *(theirs for theirs, ours in IDS.items() if ours in ids)})


def register(*args: Any, **kwargs: Any) -> NoReturn:
    """Not there: EnvPool's way to add envs that were compiled with it."""
    raise UnsupportedError(
        "register: envs compiled with EnvPool cannot be used here. stepmill.register gives an env of your own an id"
    )
