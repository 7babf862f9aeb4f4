"""Gymnasium wrappers that also tell how they change shapes.

``wrap(env, ["NoopResetEnv", ("FrameStack", {"n_frames": 2})])`` puts a list of them on an env, innermost first;
``update_shape`` tells the resulting shapes; ``wrap_atari`` is the usual list for Atari games.
"""

from stepmill.wrappers.action_repeat import ActionRepeat
from stepmill.wrappers.atari import atari_wrappers, wrap_atari
from stepmill.wrappers.base import ShapeTeller
from stepmill.wrappers.catalogue import WRAPPERS, find_wrapper, update_shape, wrap, wrapper_names
from stepmill.wrappers.clip_reward import ClipRewardEnv
from stepmill.wrappers.delay_reward import DelayReward
from stepmill.wrappers.episodic_life import EpisodicLifeEnv
from stepmill.wrappers.eval_episode_return import EvalEpisodeReturn
from stepmill.wrappers.fire_reset import FireResetEnv
from stepmill.wrappers.flat_obs import FlatObs
from stepmill.wrappers.frame_stack import FrameStack
from stepmill.wrappers.gym_hybrid_dict_action import GymHybridDictAction
from stepmill.wrappers.max_and_skip import MaxAndSkipEnv
from stepmill.wrappers.noop_reset import NoopResetEnv
from stepmill.wrappers.obs_norm import ObsNormEnv
from stepmill.wrappers.obs_plus_prev_act_rew import ObsPlusPrevActRew
from stepmill.wrappers.obs_transpose import ObsTransposeWrapper
from stepmill.wrappers.ram import RamWrapper
from stepmill.wrappers.reward_norm import RewardNormEnv
from stepmill.wrappers.running_mean_std import RunningMeanStd
from stepmill.wrappers.scaled_float_frame import ScaledFloatFrame
from stepmill.wrappers.static_obs_norm import StaticObsNorm
from stepmill.wrappers.time_limit import TimeLimit
from stepmill.wrappers.warp_frame import WarpFrame

__all__ = [
    "WRAPPERS",
    "ActionRepeat",
    "ClipRewardEnv",
    "DelayReward",
    "EpisodicLifeEnv",
    "EvalEpisodeReturn",
    "FireResetEnv",
    "FlatObs",
    "FrameStack",
    "GymHybridDictAction",
    "MaxAndSkipEnv",
    "NoopResetEnv",
    "ObsNormEnv",
    "ObsPlusPrevActRew",
    "ObsTransposeWrapper",
    "RamWrapper",
    "RewardNormEnv",
    "RunningMeanStd",
    "ScaledFloatFrame",
    "ShapeTeller",
    "StaticObsNorm",
    "TimeLimit",
    "WarpFrame",
    "atari_wrappers",
    "find_wrapper",
    "update_shape",
    "wrap",
    "wrap_atari",
    "wrapper_names",
]
