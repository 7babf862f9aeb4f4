"""What a suite of JAX worlds offers: one env as pure functions.

An adapter (``zoo/worlds``) makes a ``JaxWorld`` of an env of its suite. Everything else is written once, for all of
them: many envs, compiling, autoreset, time limits, statistics, seeds (``device/functional.py``, ``jax_program.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gymnasium import spaces


class Begun(NamedTuple):
    """A new episode: what a reset gives. ``state`` is any pytree of arrays, ``info`` a dict of arrays."""

    state: Any
    observation: Any
    info: Mapping[str, Any] = {}


class Moved(NamedTuple):
    """What a step gives: scalars, but for ``state``, ``observation`` and ``info``."""

    state: Any
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Mapping[str, Any] = {}


@dataclass(frozen=True)
class JaxWorld:
    """One env, as functions that JAX can trace and vectorise.

    Neither of them resets when an episode ends, and neither counts steps for a time limit: the pool does both.

    Args:
        id: The name for ``make``, such as ``"gymnax:CartPole-v1"``.
        observation_space: Of the observations. Dict and Tuple spaces are dicts and tuples of arrays.
        action_space: Of the actions, of the types that ``step`` takes.
        reset: ``reset(key)`` begins an episode.
        step: ``step(key, state, action)``. If it needs no randomness, it ignores the key.
        max_episode_steps: The suite's own time limit.
        config: What the env was made with, every key of it.
        resets_cheaply: Whether a reset costs no more than some steps. Then every step computes one for each env, and
            most are thrown away; else only those that are needed, some at a time.
        draw: ``draw(state)`` is a picture of one env, whose state comes in numpy's arrays. None: it has none.
        reward_threshold: The mean return at which it counts as solved.
    """

    id: str
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    reset: Callable[[Any], Begun]
    step: Callable[[Any, Any, Any], Moved]
    max_episode_steps: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    resets_cheaply: bool = False
    draw: Callable[[Any], Any] | None = None
    reward_threshold: float | None = None
