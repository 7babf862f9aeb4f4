"""Plays the envs of a pool with a policy, batch by batch, and counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stepmill.tools.cli.policy import Policy
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["Batch", "Count", "play"]


class Batch(NamedTuple):
    """What ``recv`` returned, and how long the envs and the policy took for it."""

    obs: Any
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: dict[str, Any]
    env_seconds: float
    policy_seconds: float
    is_start: bool  # whether envs were still in their first reset, which may take long

    @property
    def ended(self) -> np.ndarray:
        ended: np.ndarray = self.terminated | self.truncated
        return ended


@dataclass
class Count:
    """What was played."""

    steps: int = 0
    env_seconds: float = 0.0
    policy_seconds: float = 0.0
    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        """Counts a batch, unless envs were still starting."""
        if batch.is_start:
            return
        self.steps += len(batch.info["env_id"])
        self.env_seconds += batch.env_seconds
        self.policy_seconds += batch.policy_seconds
        ended = batch.ended
        if ended.any():
            self.returns += batch.info["episode_return"][ended].tolist()
            self.lengths += batch.info["episode_length"][ended].tolist()

    @property
    def steps_per_second(self) -> float:
        """Of the envs, without the policy."""
        return self.steps / self.env_seconds if self.env_seconds else 0.0

    @property
    def steps_per_second_with_policy(self) -> float:
        seconds = self.env_seconds + self.policy_seconds
        return self.steps / seconds if seconds else 0.0


def play(pool: GymnasiumPool, policy: Policy) -> Iterator[Batch]:
    """Plays for ever: yields one batch after another, the first ones with the observations of the first resets.

    The envs of a batch are idle until the next one is asked for.
    """
    env_seconds = policy_seconds = 0.0
    starting = set(pool.all_env_ids.tolist())
    pool.async_reset()
    while True:
        start = time.perf_counter()
        obs, reward, terminated, truncated, info = pool.recv()
        env_seconds += time.perf_counter() - start
        is_start = bool(starting)
        if is_start:
            starting.difference_update(info["env_id"].tolist())
        yield Batch(obs, reward, terminated, truncated, info, env_seconds, policy_seconds, is_start)
        start = time.perf_counter()
        chosen = policy.actions(obs, info)
        decided = time.perf_counter()
        pool.send(chosen)
        env_seconds, policy_seconds = time.perf_counter() - decided, decided - start
