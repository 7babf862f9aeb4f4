"""``--policy``: who acts. ``policy(observations, env_ids, generators)``, as everywhere, or random actions."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import click
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from stepmill.errors import InputError, summary
from stepmill.hosts.rollout.policy import Policy, check_policy, per_env
from stepmill.hosts.rollout.steps import StepBatch
from stepmill.tools.cli.program import place_of
from stepmill.tools.cli.target import attribute_of
from stepmill.views.gymnasium import GymnasiumPool

_DRAWN_BATCHES = 32


def load_policy(text: str) -> Policy | None:
    """The policy that ``--policy`` names; ``None`` is random actions. A class is called without arguments."""
    if text == "random":
        return None
    found = attribute_of(text, "'random', or a policy")
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise click.UsageError(f"{text} cannot be called without arguments: {summary(error)}") from error
    try:
        check_policy(found, f"--policy {text}")
    except InputError as error:
        raise click.UsageError(str(error)) from None
    policy: Any = _telling(found)
    if hasattr(found, "begin"):
        policy.begin = _telling(found.begin)
    told: Policy = policy
    return told


def _telling(function: Any) -> Any:
    """The user's function. What it raises becomes one line that says where."""

    @functools.wraps(function, updated=())
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # SystemExit too: it would end the command as if all were well
            raise click.ClickException(f"the policy failed: {summary(error)}{place_of(error)}") from error

    return call


class RandomActions:
    """A policy that draws whole batches from the action space: nothing is quicker.

    Args:
        space: That of one env, or of one player.
        seed: What is drawn follows from it.
        repeated: Whether some batches are drawn once and repeated: where the envs' speed is measured, drawing must cost
            nothing.
    """

    def __init__(self, space: spaces.Space[Any], seed: int, *, repeated: bool = False) -> None:
        self._space, self._seed = space, seed
        self._drawn: dict[int, Iterator[Any]] = {}  # by the number of rows
        self._repeated = repeated

    def __call__(self, observations: Any, env_ids: np.ndarray, generators: Sequence[np.random.Generator]) -> Any:
        rows = len(env_ids)
        if rows not in self._drawn:
            batch = batch_space(self._space, rows)
            batch.seed(self._seed + rows)
            draws: Iterator[Any] = (batch.sample() for _ in itertools.count())
            self._drawn[rows] = itertools.cycle(itertools.islice(draws, _DRAWN_BATCHES)) if self._repeated else draws
        return (next(self._drawn[rows]),)


def play_on(pool: GymnasiumPool, policy: Policy | None, seed: int, *, repeated: bool = False) -> Iterator[StepBatch]:
    """Plays without end, from the first batch after all envs have begun: their first resets may take long."""
    batches = pool.play(policy or RandomActions(pool.spec.action_space, seed, repeated=repeated), seed=seed)
    starting = set(range(pool.num_envs))
    while starting:
        starting.difference_update(next(batches).env_ids.tolist())
    return batches


def random_by_row(space: spaces.Space[Any]) -> Policy:
    """A policy whose random actions follow from the generator of each row alone."""
    space = copy.deepcopy(space)

    @per_env
    def draw(observation: Any, generator: np.random.Generator) -> Any:
        space.seed(int(generator.integers(2**31)))
        return space.sample()

    return draw
