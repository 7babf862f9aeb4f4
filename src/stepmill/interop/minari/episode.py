"""One episode: where it starts, and what has been recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["Arrays", "Episode", "Row", "env_seed", "generator_of"]

Row = list[Any]  # one value per leaf of a space
Arrays = dict[str, np.ndarray]

_SEEDS = 2**31  # what every env takes as a seed, emulators included


def env_seed(seed: int, number: int) -> int:
    """The seed of the env in an episode. No two episodes of a collection have the same one."""
    first = int(np.random.SeedSequence(seed).generate_state(1)[0])
    return (first + number) % _SEEDS


def generator_of(seed: int, number: int) -> np.random.Generator:
    """The generator of the policy in an episode."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))


@dataclass
class Episode:
    """One attempt at an episode. Rows are copies, so that no batch of the pool is held for the sake of one row."""

    number: int
    attempt: int
    seed: int
    generator: np.random.Generator
    act: Callable[[Any, Any], Any]
    observations: list[Row] = field(default_factory=list)
    actions: list[Row] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminations: list[bool] = field(default_factory=list)
    truncations: list[bool] = field(default_factory=list)

    @property
    def has_begun(self) -> bool:
        """Whether its first observation has come."""
        return bool(self.observations)

    def observe(self, row: Row) -> None:
        """Records an observation."""
        self.observations.append([part.copy() if isinstance(part, np.ndarray) else part for part in row])

    def arrays(self) -> Arrays:
        """All of it, by name: what a shard holds."""
        out = {f"observations.{i}": _stacked(column) for i, column in enumerate(zip(*self.observations, strict=True))}
        out |= {f"actions.{i}": _stacked(column) for i, column in enumerate(zip(*self.actions, strict=True))}
        out["rewards"] = np.array(self.rewards, np.float64)
        out["terminations"] = np.array(self.terminations, np.bool_)
        out["truncations"] = np.array(self.truncations, np.bool_)
        out["seed"] = np.array(self.seed, np.int64)
        return out


def _stacked(column: Sequence[Any]) -> np.ndarray:
    return np.array(column) if isinstance(column[0], str) else np.stack(column)
