"""``BaseEnv``, the contract of an env; elements to build larger envs from; adapters between all kinds of envs."""

from stepmill.envs.adapters import as_base_env, as_gymnasium
from stepmill.envs.adapters.as_gymnasium import AsGymnasium
from stepmill.envs.adapters.ding_env_wrapper import DingEnvWrapper
from stepmill.envs.adapters.dm_adapter import DmAsGymnasium
from stepmill.envs.adapters.parallel import ParallelAsBaseEnv
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.common.conversions import to_ndarray, to_tensor
from stepmill.envs.common.encodings import (
    affine_transform,
    batch_binary_encode,
    clip_one_hot,
    div_func,
    div_one_hot,
    get_position_vector,
    get_postion_vector,
    inverse_affine_transform,
    num_first_one_hot,
    one_hot,
    reorder_boolean_vector,
    reorder_one_hot,
    reorder_one_hot_array,
    sqrt_one_hot,
)
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
    "affine_transform",
    "as_base_env",
    "as_gymnasium",
    "batch_binary_encode",
    "clip_one_hot",
    "div_func",
    "div_one_hot",
    "get_position_vector",
    "get_postion_vector",
    "inverse_affine_transform",
    "num_first_one_hot",
    "one_hot",
    "read_cfg",
    "reorder_boolean_vector",
    "reorder_one_hot",
    "reorder_one_hot_array",
    "sqrt_one_hot",
    "to_ndarray",
    "to_tensor",
]
