"""``BaseEnv``, the contract of an env; elements to build larger envs from; adapters between all kinds of envs."""

from stepmill.envs.adapters import as_base_env, as_gymnasium
from stepmill.envs.adapters.as_gymnasium import AsGymnasium
from stepmill.envs.adapters.ding_env_wrapper import DingEnvWrapper
from stepmill.envs.adapters.dm_adapter import DmAsGymnasium
from stepmill.envs.adapters.parallel import ParallelAsBaseEnv
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.common import *  # noqa: F403  (each of them is public)
from stepmill.envs.common import __all__ as _common
from stepmill.envs.common.env_element import EnvElement, IEnvElement
from stepmill.envs.common.env_element_runner import EnvElementRunner, IEnvElementRunner
from stepmill.envs.configs import read_cfg
from stepmill.envs.env_info import BaseEnvInfo, EnvElementInfo
from stepmill.envs.timestep import BaseEnvTimestep

__all__ = [
    "AsGymnasium",
    "BaseEnv",
    "BaseEnvInfo",
    "BaseEnvTimestep",
    "DingEnvWrapper",
    "DmAsGymnasium",
    "EnvElement",
    "EnvElementInfo",
    "EnvElementRunner",
    "IEnvElement",
    "IEnvElementRunner",
    "ParallelAsBaseEnv",
    "as_base_env",
    "as_gymnasium",
    "read_cfg",
    *_common,
]
