"""The autoreset state machine of Python envs: what one action does to one env.

The same machine as ``cpp/core/stepper.h``, which draws it. Every backend that steps Python envs uses
this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np

from stepmill.pool.faults import Fault

__all__ = ["EnvStepper", "ResetRequest", "Row"]


@dataclass(frozen=True)
class ResetRequest:
    """What a reset is given."""

    seed: int | None = None
    options: dict[str, Any] | None = None


class Phase(Enum):
    """FRESH: never reset. LIVE: inside an episode. ENDED: must be reset before it steps."""

    FRESH = auto()
    LIVE = auto()
    ENDED = auto()


@dataclass(slots=True)
class Row:
    """What one action gave: a row of the next batch."""

    observation: Any = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] | None = None
    elapsed: int = 0
    ended: bool = False
    episode_return: float = 0.0
    episode_length: int = 0
    final_observation: Any = None
    final_info: dict[str, Any] | None = None
    fault: Fault | None = None


class EnvStepper:
    """One Python env and its place in an episode."""

    def __init__(
        self,
        env: Any,
        env_id: int,
        autoreset: str,
        max_episode_steps: int | None,
        seed: int,
        check: Callable[[int, Any], None],
        own: Callable[[Any], Any] | None,
        keep_last: bool,
    ) -> None:
        self.env = env
        self.env_id = env_id
        self.phase = Phase.FRESH
        self._autoreset = autoreset
        self._limit = max_episode_steps
        self._check = check  # raises where the observation does not fit the space
        self._own = own or _as_it_is  # an observation whose objects the env cannot change any more
        self._next_reset = ResetRequest(seed=seed)
        self._elapsed = 0
        self._return = 0.0
        self._episode = 0
        self._failures = 0
        self._look = False
        self._keep_last = keep_last  # a failure shows the last good observation, which the env may write over
        self.last_observation: Any = None

    @property
    def needs_reset(self) -> bool:
        return self.phase is Phase.ENDED

    def request_reset(self, request: ResetRequest) -> None:
        """The next action is a reset with these arguments."""
        if request.seed is None:  # one that no reset has used yet still counts
            request = ResetRequest(self._next_reset.seed, request.options)
        self._next_reset = request
        self.phase = Phase.FRESH

    def request_look(self) -> None:
        """The next action shows where the env stands and moves nothing."""
        self._look = True

    def advance(self, action: Any) -> Row:
        """Does one action, or the reset that stands for it."""
        where = "reset"
        look, self._look = self._look, False
        if look and self.last_observation is not None:
            return Row(self.show_last(), elapsed=self._elapsed)
        try:
            if self.phase is not Phase.LIVE:
                row = Row()
                self._reset(row)
                return row
            where = "step"
            return self._step(action)
        except (Exception, SystemExit) as error:
            return self.fail(where, error)

    def _reset(self, row: Row) -> None:
        request = self._next_reset
        observation, info = self.env.reset(seed=request.seed, options=request.options)
        self._check(self.env_id, observation)
        _check_info(info)
        shown = self._own(observation)
        self._next_reset = ResetRequest()
        self.phase = Phase.LIVE
        self._elapsed = 0
        self._return = 0.0
        self._episode += 1
        row.observation, row.info, row.elapsed = shown, info, 0
        self._keep(observation)

    def _step(self, action: Any) -> Row:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._check(self.env_id, observation)
        _check_info(info)
        row = Row(self._own(observation), float(reward), bool(terminated), bool(truncated), info)
        self._elapsed += 1
        self._return += row.reward
        row.truncated = row.truncated or self._elapsed == self._limit
        row.elapsed = self._elapsed
        self._failures = 0
        self._keep(observation)
        if row.terminated or row.truncated:
            self._end(row)
        return row

    def _keep(self, observation: Any) -> None:
        self.last_observation = snapshot(self._own(observation)) if self._keep_last else observation

    def show_last(self) -> Any:
        """The last observation once more: for another batch, so with objects of its own."""
        return self._own(self.last_observation)

    def _end(self, row: Row) -> None:
        row.ended = True
        row.episode_return = self._return
        row.episode_length = self._elapsed
        self.phase = Phase.ENDED
        if self._autoreset != "same_step":
            return
        # The reset may write over what the step showed.
        row.observation = row.final_observation = snapshot(row.observation)
        row.final_info = snapshot(row.info)
        try:
            self._reset(row)
        except (Exception, SystemExit) as error:
            # Reward and end stand; the observation is the final one, and the next action resets.
            row.fault = self._fault("reset", error)

    def fail(self, where: str, error: BaseException) -> Row:
        """A failure fills its row like any result."""
        self.phase = Phase.ENDED
        return Row(truncated=True, elapsed=self._elapsed, fault=self._fault(where, error))

    def _fault(self, where: str, error: BaseException) -> Fault:
        self._failures += 1
        return Fault(
            self.env_id,
            where,
            self._episode,
            self._elapsed,
            self._failures,
            f"{type(error).__name__}: {error}",
            error,
        )


def _as_it_is(value: Any) -> Any:
    return value


def snapshot(value: Any) -> Any:
    """A value with its arrays copied, whatever they are nested in."""
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: snapshot(child) for key, child in value.items()}
    if isinstance(value, tuple):
        children = [snapshot(child) for child in value]
        return value._make(children) if hasattr(value, "_make") else tuple(children)
    return value


def _check_info(info: Any) -> None:
    if not isinstance(info, Mapping):
        raise TypeError(f"info: expected a dict, got a {type(info).__name__}")
