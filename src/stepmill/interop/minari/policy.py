"""The user's policy: asked for one action after another, or for those of many envs at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.conform import action_reader
from stepmill.errors import ActionError, ConfigError
from stepmill.interop.minari.episode import Episode, Row
from stepmill.managers.stacking import stack_actions
from stepmill.values.fitting import Misfit, fit
from stepmill.values.spaces import flatten
from stepmill.values.trees import Tree, map_tree, map_trees, tree_of
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["Policy", "name_of"]


def name_of(policy: Any) -> str:
    """The name of a function, or of the class of an object."""
    name: str = getattr(policy, "__name__", None) or type(policy).__name__
    return name


class Policy:
    """Chooses actions and puts them into the types of the action space: what is recorded is what the env gets.

    Args:
        policy: What the user gave.
        pool: Whose envs it plays.
        batched: Whether it takes many observations at once.
    """

    def __init__(self, policy: Any, pool: GymnasiumPool, batched: bool) -> None:
        self._begin = getattr(policy, "begin_episode", None)
        if not callable(policy) and self._begin is None:
            raise ConfigError(f"policy: expected a function of an observation and a generator, got {policy!r}")
        if batched and self._begin is not None:
            raise ConfigError("policy: expected begin_episode or batched=True, got both: a batch has many episodes")
        self._policy = policy
        self._batched = batched
        self._space = flatten(pool.spec.action_space)
        self._tree: Tree = tree_of(pool.spec.action_space)
        self._read = action_reader(pool.spec.action_space, "policy")
        self._clips = pool.config["action_bounds"] == "clip"

    def begin(self, generator: np.random.Generator) -> Callable[[Any, Any], Any]:
        """What chooses the actions of one episode."""
        act: Callable[[Any, Any], Any] = self._policy if self._begin is None else self._begin(generator)
        return act

    def choose(self, episodes: Sequence[Episode], rows: Sequence[Row], form: Tree) -> tuple[list[Row], Any]:
        """Actions after the given rows of observations: row by row, and as a batch for the pool."""
        if self._batched:
            given = self._choose_batch(episodes, rows, form)
        else:
            given = [
                episode.act(map_tree(row.__getitem__, form), episode.generator)
                for episode, row in zip(episodes, rows, strict=True)
            ]
        actions = [self._as_sent(one) for one in given]
        return [self._flat(one) for one in actions], stack_actions(self._space, actions, 1)

    def _choose_batch(self, episodes: Sequence[Episode], rows: Sequence[Row], form: Tree) -> list[Any]:
        """Asks once for the actions of all."""
        columns = [_column(column) for column in zip(*rows, strict=True)]
        batch = self._policy(map_tree(columns.__getitem__, form), [episode.generator for episode in episodes])

        def check(space: spaces.Space[Any], column: Any) -> Any:
            if not hasattr(column, "__len__") or len(column) != len(rows):
                raise Misfit(f"{len(rows)} values of {space}", column)
            return column

        try:
            checked = fit(check, self._tree, batch)
        except Misfit as misfit:
            raise ActionError(f"policy: {misfit.message('actions')}") from None
        return [map_trees(functools.partial(_value, i), self._tree, checked) for i in range(len(rows))]

    def _as_sent(self, action: Any) -> Any:
        """An action in the types of its space."""
        value = self._read(action)
        return map_trees(_clipped, self._tree, value) if self._clips else value

    def _flat(self, action: Any) -> Row:
        row: Row = []
        map_trees(lambda space, part: row.append(_typed(space, part)), self._tree, action)
        return row


def _column(values: tuple[Any, ...]) -> Any:
    return values if isinstance(values[0], str) else np.stack(values)


def _value(i: int, _: spaces.Space[Any], column: Any) -> Any:
    return column[i]


def _clipped(space: spaces.Space[Any], value: Any) -> Any:
    return np.clip(value, space.low, space.high) if isinstance(space, spaces.Box) else value


def _typed(space: spaces.Space[Any], value: Any) -> Any:
    return np.dtype(space.dtype).type(value) if isinstance(space, spaces.Discrete) else value
