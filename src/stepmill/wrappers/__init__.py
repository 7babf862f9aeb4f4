"""Gymnasium wrappers that also tell how they change shapes.

``wrap(env, ["NoopResetEnv", ("FrameStack", {"n_frames": 2})])`` puts a list of them on an env, innermost first;
``update_shape`` tells the resulting shapes; ``wrap_atari`` is the usual list for Atari games.
"""

from stepmill.wrappers.action_wrappers import ActionRepeat, GymHybridDictAction, MaxAndSkipEnv
from stepmill.wrappers.atari import atari_wrappers, wrap_atari
from stepmill.wrappers.base import ShapeTeller
from stepmill.wrappers.catalogue import WRAPPERS, find_wrapper, update_shape, wrap, wrapper_names
from stepmill.wrappers.episodes import EpisodicLifeEnv, FireResetEnv, NoopResetEnv, TimeLimit
from stepmill.wrappers.images import ObsTransposeWrapper, ScaledFloatFrame, WarpFrame
from stepmill.wrappers.normalisation import ObsNormEnv, RewardNormEnv, StaticObsNorm
from stepmill.wrappers.observations import FlatObs, FrameStack, ObsPlusPrevActRew, RamWrapper
from stepmill.wrappers.rewards import ClipRewardEnv, DelayReward, EvalEpisodeReturn
from stepmill.wrappers.running_mean_std import RunningMeanStd

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
