"""Rules about how an env describes itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.testing.finding import Problem, Unchecked
from stepmill.testing.rules.rule import rule
from stepmill.testing.trial import Trial
from stepmill.testing.values import kind_of, leaves, mismatches, same, show
from stepmill.values.fitting import holds_arrays
from stepmill.values.trees import leaves as leaves_of
from stepmill.values.trees import paths, tree_of

_SPACES = {"observation_space": "observation", "action_space": "action", "reward_space": "reward"}


@rule("Set it in __init__ from the configuration, or as a class attribute.")
def spaces_known(trial: Trial) -> Iterator[Problem]:
    """Spaces and ``num_agents`` can be asked for before the first reset."""
    early = trial.seen(trial.early)
    errors = {one.call: one.error for one in reversed(trial.subject.raised) if one.where.endswith("before reset")}
    for name, part in _SPACES.items():
        said = getattr(early, part)
        if not isinstance(said, spaces.Space):
            yield Problem(f"{name} before reset", "a gymnasium space", errors.get(name) or kind_of(said))
    if "num_agents" in errors:
        yield Problem("num_agents before reset", "a whole number", errors["num_agents"])


@rule("Decide on spaces once, from the configuration.")
def spaces_fixed(trial: Trial) -> Iterator[Problem]:
    """The spaces and ``num_agents`` before the first reset stay the same later."""
    early = trial.seen(trial.early)
    if not trial.late:
        raise Unchecked(trial.stopped or "no reset was made")
    for when, late in trial.late:
        for name, before, after in zip(early._fields, early, late, strict=True):
            subject = name if name == "num_agents" else f"{name}_space"
            if before is not None and not _equal(before, after):
                yield Problem(f"{subject} {when}", f"{show(before)}, as before reset", show(after))


@rule("Make num_agents an int, and give every space of the agents one row per agent: shape (num_agents, ...).")
def num_agents(trial: Trial) -> Iterator[Problem]:
    """At least 1; with many agents, observation and action have one row per agent."""
    early = trial.seen(trial.early)
    count = early.num_agents
    if trial.raised_in("num_agents"):
        raise Unchecked("the env does not say it before reset")
    if type(count) is not int or count < 1:
        yield Problem("num_agents", "an int >= 1", show(count))
        return
    for name in ("observation", "action"):
        space = getattr(early, name)
        if count > 1 and isinstance(space, spaces.Space) and not _has_rows(space, count):
            yield Problem(f"{name}_space", f"a row for each of {count} agents", show(space))


def _has_rows(space: spaces.Space[Any], count: int) -> bool:
    """One part per agent, or in a Dict at least one entry with one row per agent: others may be for all."""
    if isinstance(space, spaces.Tuple):
        return len(space.spaces) == count or any(_has_rows(child, count) for child in space.spaces)
    if isinstance(space, spaces.Dict):
        return any(_has_rows(child, count) for child in space.values())
    shape = space.shape
    return shape is None or (len(shape) > 0 and shape[0] == count)


@rule("Use np.float32 or np.int64 for the action space, and MultiDiscrete([2, 2, ...]) for flags.")
def action_dtype(trial: Trial) -> Iterator[Problem]:
    """Actions are float32 or int64."""
    space = trial.seen(trial.action_space)
    tree = tree_of(space)
    for path, leaf in zip(leaves_of(paths(tree, "action_space")), leaves_of(tree), strict=True):
        if holds_arrays(leaf) and leaf.dtype not in (np.float32, np.int64):
            yield Problem(path, "float32 or int64", str(np.dtype(leaf.dtype)))


@rule("Inherit random_action() from BaseEnv, or return arrays of the action space.")
def random_action(trial: Trial) -> Iterator[Problem]:
    """``random_action()`` returns an action of the action space, made of arrays."""
    space = trial.seen(trial.action_space)
    if trial.random_action is None and trial.stopped is None:
        raise Unchecked("the env has no random_action() that returns")
    (action,) = trial.seen(trial.random_action)
    found = False
    for mismatch in mismatches(space, action, "random_action()"):
        found = True
        yield Problem(*mismatch)
    if not found and not space.contains(action):
        bad = [leaf for leaf in leaves(space, action, "random_action()") if not leaf.space.contains(leaf.value)]
        for path, leaf, value in bad:
            yield Problem(path, f"an action of {show(leaf)}", show(value))


@rule("Let __repr__ return a short text that says which env this is.")
def repr_text(trial: Trial) -> Iterator[Problem]:
    """``repr(env)`` works at any time: logs and errors show it."""
    trial.seen(trial.early)
    for error in trial.raised_in("repr"):
        yield Problem("repr(env)", "a text", error.error)
    if trial.text == "":
        yield Problem("repr(env)", "a text that is not empty", "''")


def _equal(before: Any, after: Any) -> bool:
    return type(before) is type(after) and same(before, after)
