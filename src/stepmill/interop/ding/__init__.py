"""Registers our env managers with DI-engine, by name.

Importing this module is enough. A configuration of DI-engine can do that itself::

    create_config = dict(env_manager=dict(type="stepmill_subprocess", import_names=["stepmill.interop.ding"]), ...)

Names that end in ``_v2`` are for ``StepCollector`` and ``interaction_evaluator``; the others are for
``serial_pipeline`` and its collectors and evaluators.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from stepmill.errors import MissingPackageError

if importlib.util.find_spec("ding") is None:
    raise MissingPackageError("stepmill.interop.ding needs DI-engine 0.5.3, which is not installed")

# DI-engine registers its own managers on import, and only once per name: it has to come before `replace_managers`.
import ding.envs  # type: ignore[import-not-found]  # noqa: F401
from ding.utils import ENV_MANAGER_REGISTRY  # type: ignore[import-not-found]

from stepmill.interop.ding.managers import (
    DingAsyncSubprocessEnvManager,
    DingBaseEnvManager,
    DingBaseEnvManagerV2,
    DingSubprocessEnvManager,
    DingSubprocessEnvManagerV2,
)

__all__ = [
    "MANAGERS",
    "DingAsyncSubprocessEnvManager",
    "DingBaseEnvManager",
    "DingBaseEnvManagerV2",
    "DingSubprocessEnvManager",
    "DingSubprocessEnvManagerV2",
    "replace_managers",
]

# By DI-engine's names. There is no async manager among the v2 ones: DI-engine pairs what they return with what it sent
# by position, so they have to return exactly that.
MANAGERS: dict[str, Any] = {
    "base": DingBaseEnvManager,
    "subprocess": DingSubprocessEnvManager,
    "async_subprocess": DingAsyncSubprocessEnvManager,
    "base_v2": DingBaseEnvManagerV2,
    "subprocess_v2": DingSubprocessEnvManagerV2,
}

for _name, _manager in MANAGERS.items():
    ENV_MANAGER_REGISTRY.register(f"stepmill_{_name}", _manager, force_overwrite=True)


def replace_managers() -> dict[str, Any]:
    """Replaces DI-engine's own managers with ours, for configurations that name DI-engine's.

    Returns the replaced ones by name: ``ENV_MANAGER_REGISTRY.update(...)`` with them puts them back.
    """
    before = {name: ENV_MANAGER_REGISTRY[name] for name in MANAGERS}
    for name, manager in MANAGERS.items():
        ENV_MANAGER_REGISTRY.register(name, manager, force_overwrite=True)
    return before
