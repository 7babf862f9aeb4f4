"""What ``pool.rollout`` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stepmill.values.trees import map_trees


class Ends(NamedTuple):
    """The last observations of some episodes: at which step, of which env, and a row of each leaf for each."""

    step: np.ndarray
    env: np.ndarray
    leaves: list[np.ndarray]


@dataclass(frozen=True)
class Rollout:
    """What N envs did in T steps each. Arrays have the axes (T, N, ...); ``[t, i]`` belongs to step t of env i.

    Observations and actions have the structure of their spaces: an array, or dicts and tuples of arrays. The arrays are
    numpy's and yours. Infos are not recorded.

    Attributes:
        observations: What the policy saw before each step.
        actions: What the policy returned for it, in the dtype of the action space; before any clipping.
        rewards: The reward of each step.
        terminated: Whether the step ended an episode.
        truncated: Whether the step cut an episode off: a time limit, or a failure.
        reset: Whether the step was a reset, which ignores the action: with ``autoreset="next_step"`` the one after the
            end of an episode; in any mode the one after a failure, and the first one of an env that was never reset.
        abnormal: Whether something went wrong in the step: the env failed, or said so itself. Do not learn from it. If
            the machine of an env was lost, what the policy did there is unknown: actions and extras are zeros then.
        extras: What else the policy returned, such as log-probabilities and values, in its order.
        last_observation: What the envs show after the last step, as (N, ...): for the value of what comes next.
    """

    observations: Any
    actions: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    reset: np.ndarray
    abnormal: np.ndarray
    extras: tuple[np.ndarray, ...]
    last_observation: Any
    _ends: Ends | None = field(default=None, repr=False)

    @property
    def steps(self) -> int:
        """T."""
        return len(self.rewards)

    @property
    def num_envs(self) -> int:
        """N."""
        return int(self.rewards.shape[1])

    @cached_property
    def final_observations(self) -> Any:
        """The last observation of each episode at the step that ended it, and zeros elsewhere, as (T, N, ...).

        For the value of an episode that was cut off: ``observations`` at the next step may be that of a reset. Made
        when it is first asked for: until then only the rows that are not in ``observations`` are kept.
        """
        step, env = np.nonzero(self.terminated | self.truncated)
        is_last = step == self.steps - 1
        rows = iter(self._ends.leaves if self._ends is not None else ())

        def dense(seen: np.ndarray, last: np.ndarray) -> np.ndarray:
            out = np.zeros_like(seen)
            out[step[~is_last], env[~is_last]] = seen[step[~is_last] + 1, env[~is_last]]
            out[-1, env[is_last]] = last[env[is_last]]
            if self._ends is not None:
                out[self._ends.step, self._ends.env] = next(rows)
            return out

        return map_trees(dense, self.observations, self.last_observation)

    def __repr__(self) -> str:
        ended = int((self.terminated | self.truncated).sum())
        return f"Rollout(steps={self.steps}, num_envs={self.num_envs}, episodes that ended: {ended})"
