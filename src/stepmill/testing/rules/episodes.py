"""Rules about an episode: its end, its numbers, and who owns the memory of its arrays."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stepmill.testing.finding import Problem
from stepmill.testing.play import HeldArray, Moment
from stepmill.testing.rules.rule import moment_rule
from stepmill.testing.values import arrays_in, show, text_of


@moment_rule("Sum up the rewards, or whatever measures the episode, and put float(total) into the last info.", at="end")
def episode_return(moment: Moment) -> Iterator[Problem]:
    """The info of the step that ends an episode has ``eval_episode_return``, a Python float."""
    if not isinstance(moment.info, dict):
        return
    value = moment.info.get("eval_episode_return")
    if "eval_episode_return" not in moment.info:
        yield Problem("info['eval_episode_return']", "a float at the end of an episode", "none")
    elif type(value) is not float:
        yield Problem("info['eval_episode_return']", "a Python float", show(value))


@moment_rule("Put the same value under both keys.", at="end")
def episode_return_alias(moment: Moment) -> Iterator[Problem]:
    """``info["final_eval_reward"]``, which older callers read, is the same as ``eval_episode_return``."""
    if not isinstance(moment.info, dict) or "eval_episode_return" not in moment.info:
        return
    expected = moment.info["eval_episode_return"]
    if "final_eval_reward" not in moment.info:
        yield Problem("info['final_eval_reward']", show(expected), "none")
    elif text_of(moment.info["final_eval_reward"]) != text_of(expected):  # NaN is the same as NaN
        yield Problem("info['final_eval_reward']", show(expected), show(moment.info["final_eval_reward"]))


@moment_rule(
    "Find where it comes from: a division by 0, the root of a negative number, an array that was never filled."
)
def no_nan(moment: Moment) -> Iterator[Problem]:
    """Observations, rewards and episode returns hold no NaN."""
    for path, array in moment.arrays():
        if array.dtype.kind == "f" and np.isnan(array).any():
            yield Problem(path, "numbers", "NaN")
    for name, value in (("reward", moment.reward), ("info['eval_episode_return']", _return(moment))):
        if isinstance(value, float | np.floating) and np.isnan(value):
            yield Problem(name, "a number", "NaN")


def _return(moment: Moment) -> object:
    return moment.info.get("eval_episode_return") if isinstance(moment.info, dict) else None


@moment_rule("Return a copy, obs.copy(), and a new dict for each info.")
def own_memory(moment: Moment) -> Iterator[Problem]:
    """What an env returns belongs to the caller: the env does not write into it later, nor return it again."""
    for held in moment.held:
        if held.array.tobytes() != held.content:
            yield Problem(held.path, f"what {held.where} returned not to change", "a change in this call")
    for path, array in moment.arrays():
        for held in moment.held:
            if _is_shared(array, held):
                yield Problem(path, "memory of its own", f"the memory of what {held.where} returned")
                break
    if isinstance(moment.info, dict) and any(moment.info is info for info in moment.held.infos):
        yield Problem("info", "a new dict", "the dict of an earlier step")


def _is_shared(array: np.ndarray, held: HeldArray) -> bool:
    """Read-only memory may be returned twice."""
    is_open = array.flags.writeable or held.array.flags.writeable
    return is_open and np.shares_memory(array, held.array)


@moment_rule("Copy the action before you change it: action = action.copy().", at="step")
def action_unchanged(moment: Moment) -> Iterator[Problem]:
    """The action belongs to the caller: ``step`` only reads it."""
    before = dict(arrays_in(moment.action_before, "action"))
    for path, array in arrays_in(moment.action, "action"):
        if path not in before or array.tobytes() != before[path].tobytes():
            yield Problem(path, f"{show(before.get(path))}, as it was passed", show(array))
