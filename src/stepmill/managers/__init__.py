"""Env managers: the view of a pool that a training framework has."""

from stepmill.managers.base_manager import BaseEnvManager
from stepmill.managers.create import create_env_manager, get_vec_env_setting
from stepmill.managers.states import EnvState
from stepmill.managers.subprocess import (
    AsyncSubprocessEnvManager,
    RayEnvManager,
    SubprocessEnvManager,
    SyncSubprocessEnvManager,
)

__all__ = [
    "AsyncSubprocessEnvManager",
    "BaseEnvManager",
    "EnvState",
    "RayEnvManager",
    "SubprocessEnvManager",
    "SyncSubprocessEnvManager",
    "create_env_manager",
    "get_vec_env_setting",
]
