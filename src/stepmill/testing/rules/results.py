"""Rules about what ``reset`` and ``step`` return: its form, observation, reward, ``done`` and ``info``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from gymnasium import spaces

from stepmill.testing.finding import Problem
from stepmill.testing.play import Moment
from stepmill.testing.rules.rule import moment_rule
from stepmill.testing.values import Leaf, kind_of, leaves, mismatches, outside, show
from stepmill.values.fitting import holds_arrays


@moment_rule("Return the observation; put anything else into self.reset_info.", at="reset")
def reset_result(moment: Moment) -> Iterator[Problem]:
    """``reset`` returns only the observation."""
    if moment.form is not None:
        yield Problem("what reset() returns", *moment.form)


@moment_rule("Return BaseEnvTimestep(obs, reward, done, info), or one of your own with more fields.", at="raw step")
def step_result(moment: Moment) -> Iterator[Problem]:
    """``step`` returns a named tuple of obs, reward, done and info, in this order."""
    if moment.form is not None:
        yield Problem("what step() returns", *moment.form)


# ---- observations --------------------------------------------------------------------------------


@moment_rule("Return arrays, nested like the observation space: np.asarray(obs, np.float32).")
def obs_type(moment: Moment) -> Iterator[Problem]:
    """Observations are ``np.ndarray``, or dicts and tuples of them, as the observation space says."""
    for mismatch in mismatches(moment.spaces.observation, moment.obs, "obs"):
        yield Problem(*mismatch)


@moment_rule("Cast it, obs.astype(np.float32), and let the observation space say the same.")
def obs_dtype(moment: Moment) -> Iterator[Problem]:
    """Observations are float32 or int64, images may be uint8, and the observation space says so."""
    for path, space, value in _arrays(moment):
        is_image = value.dtype == np.uint8 and value.ndim >= 2
        if not is_image and value.dtype not in (np.float32, np.int64):
            yield Problem(path, "float32 or int64, or uint8 for an image", str(value.dtype))
        elif value.dtype != space.dtype:
            yield Problem(path, f"{np.dtype(space.dtype)}, as in its space", str(value.dtype))


@moment_rule("Fix the shape, or the observation space.")
def obs_shape(moment: Moment) -> Iterator[Problem]:
    """Observations have the shape of the observation space."""
    for path, space, value in _arrays(moment):
        if value.shape != space.shape:
            yield Problem(path, f"the shape {space.shape}", str(value.shape))


@moment_rule("Widen the observation space, or clip the observation to it.")
def obs_bounds(moment: Moment) -> Iterator[Problem]:
    """Observations are inside the observation space."""
    for path, space, value in leaves(moment.spaces.observation, moment.obs, "obs"):
        fits = not holds_arrays(space) or (value.shape == space.shape and value.dtype.kind in "fiub")
        beyond = outside(space, value) if fits else None
        if beyond is not None:
            yield Problem(path, f"values of {show(space)}", beyond)


def _arrays(moment: Moment) -> list[Leaf]:
    return [leaf for leaf in leaves(moment.spaces.observation, moment.obs, "obs") if holds_arrays(leaf.space)]


# ---- reward --------------------------------------------------------------------------------------


@moment_rule("Return np.array([reward], np.float32).", at="step")
def reward_type(moment: Moment) -> Iterator[Problem]:
    """The reward is an ``np.ndarray``."""
    if not isinstance(moment.reward, np.ndarray):
        yield Problem("reward", "an np.ndarray", kind_of(moment.reward))


@moment_rule("Return np.array([reward], np.float32).", at="step")
def reward_dtype(moment: Moment) -> Iterator[Problem]:
    """The reward is float32."""
    if isinstance(moment.reward, np.ndarray) and moment.reward.dtype != np.float32:
        yield Problem("reward", "float32", str(moment.reward.dtype))


@moment_rule("Return one reward, or one per agent, and let reward_space say the same shape.", at="step")
def reward_shape(moment: Moment) -> Iterator[Problem]:
    """The reward has shape ``(1,)``; with many agents ``(num_agents,)``, or ``(1,)`` if they share it."""
    if not isinstance(moment.reward, np.ndarray):
        return
    count, shape = moment.spaces.num_agents, moment.reward.shape
    shapes = [(1,), (count,)] if type(count) is int and count > 1 else [(1,)]
    if shape not in shapes:
        yield Problem("reward", f"the shape {' or '.join(map(str, shapes))}", str(shape))
    elif isinstance(moment.spaces.reward, spaces.Box) and moment.spaces.reward.shape != shape:
        yield Problem("reward", f"the shape {moment.spaces.reward.shape}, as reward_space", str(shape))


@moment_rule("Widen reward_space, or leave it as BaseEnv has it.", at="step")
def reward_bounds(moment: Moment) -> Iterator[Problem]:
    """Rewards are inside the reward space."""
    reward, space = moment.reward, moment.spaces.reward
    is_plain = isinstance(reward, np.ndarray) and reward.dtype.kind in "fiu" and isinstance(space, spaces.Box)
    beyond = outside(space, reward) if is_plain and reward.shape == space.shape else None
    if beyond is not None:
        yield Problem("reward", f"values of {show(space)}", beyond)


# ---- done and info -------------------------------------------------------------------------------


@moment_rule("Return bool(done).", at="step")
def done_type(moment: Moment) -> Iterator[Problem]:
    """``done`` is a Python ``bool``; ``np.bool_`` is not one."""
    if type(moment.done) is not bool:
        yield Problem("done", "a bool", "an np.bool_" if isinstance(moment.done, np.bool_) else kind_of(moment.done))


@moment_rule("Return a dict, an empty one if there is nothing to report.", at="step")
def info_type(moment: Moment) -> Iterator[Problem]:
    """``info`` is a dict."""
    if not isinstance(moment.info, dict):
        yield Problem("info", "a dict", kind_of(moment.info))


@moment_rule("Make it a bool, or leave it out.", at="step")
def info_flags(moment: Moment) -> Iterator[Problem]:
    """``info["abnormal"]`` and ``info["TimeLimit.truncated"]``, if present, are Python bools."""
    if not isinstance(moment.info, dict):
        return
    for key in ("abnormal", "TimeLimit.truncated"):
        if key in moment.info and type(moment.info[key]) is not bool:
            yield Problem(f"info[{key!r}]", "a bool", show(moment.info[key]))
