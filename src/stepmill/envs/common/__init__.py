"""Functions that many envs need between their simulator and the agent.

``encodings``: numbers as vectors of zeros and ones. ``scaling``: from one range to another.
``conversions``: nested values to arrays and to tensors.
"""

from stepmill.envs.common.conversions import to_ndarray, to_tensor
from stepmill.envs.common.encodings import (
    batch_binary_encode,
    clip_one_hot,
    div_one_hot,
    get_position_vector,
    get_postion_vector,
    num_first_one_hot,
    one_hot,
    reorder_boolean_vector,
    reorder_one_hot,
    reorder_one_hot_array,
    sqrt_one_hot,
)
from stepmill.envs.common.scaling import affine_transform, div_func, inverse_affine_transform

__all__ = [
    "affine_transform",
    "batch_binary_encode",
    "clip_one_hot",
    "div_func",
    "div_one_hot",
    "get_position_vector",
    "get_postion_vector",
    "inverse_affine_transform",
    "num_first_one_hot",
    "one_hot",
    "reorder_boolean_vector",
    "reorder_one_hot",
    "reorder_one_hot_array",
    "sqrt_one_hot",
    "to_ndarray",
    "to_tensor",
]
