"""What envs do in a rollout, as it is written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill import _native
from stepmill.errors import InputError, OutOfMemoryError, summary
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.result import Ends, Rollout
from stepmill.values.trees import leaves, map_tree, map_trees, tree_of

# Where rows belong: a step of all envs, or a step and an env for each row.
At = int | tuple[Any, Any]


class Record:
    """Arrays with the axes (step, env, ...), filled row by row. It can be pickled."""

    def __init__(self, plan: Plan, count: int, observation: Any, action_space: spaces.Space[Any]) -> None:
        """``observation``: one of all envs, of which there are ``count``."""
        steps = plan.steps
        self.steps, self.count = steps, count
        self._same_step = plan.same_step
        # One more than steps: after the last one there is something to see, too.
        self.observations = map_tree(
            lambda leaf: _reserve(np.empty, (steps + 1, count, *leaf.shape[1:]), leaf.dtype), observation
        )
        self.actions = map_tree(
            lambda space: _reserve(np.zeros, (steps, count, *space.shape), space.dtype), tree_of(action_space)
        )
        self.rewards = _reserve(np.zeros, (steps, count), plan.reward_dtype)
        self.terminated, self.truncated, self.reset, self.abnormal = (
            _reserve(np.zeros, (steps, count), np.bool_) for _ in range(4)
        )
        self._seen: Any = 0  # the last step that was seen before, of all envs or of each
        self.extras: list[np.ndarray] | None = None
        self._ends: list[Ends] = []

    # ---- rows ------------------------------------------------------------------------------------

    def step(self, at: int, actions: Any, extras: Sequence[np.ndarray], result: Any) -> None:
        """All of a step of all envs: the three below, with the observation after it, in one call."""
        observation, rewards, terminated, truncated, info = result
        acted, seen = self.actions, self.observations
        if at and not extras and not self.extras and type(acted) is type(actions) is type(seen) is np.ndarray:
            acted[at] = actions
            self._seen = at + 1
            seen[at + 1] = observation
        else:
            self.act(at, actions, extras)
            self.see(at + 1, observation)
        if at == 0 or self._same_step or "abnormal" in info:
            self.outcome(at, result)
            return
        self.rewards[at] = rewards
        self.terminated[at] = terminated
        self.truncated[at] = truncated

    def see(self, at: At, observation: Any) -> None:
        """What was seen before a step."""
        if isinstance(at, int):
            self._seen = at
        else:
            if isinstance(self._seen, int):
                self._seen = np.zeros(self.count, np.int64)
            self._seen[at[1]] = at[0]
        if type(self.observations) is np.ndarray:
            self.observations[at] = observation
            return
        for to, leaf in zip(leaves(self.observations), leaves(observation), strict=True):
            to[at] = leaf

    def act(self, at: At, actions: Any, extras: Sequence[np.ndarray]) -> None:
        """What the policy returned for it. The engine has accepted the actions."""
        if type(self.actions) is np.ndarray:
            self.actions[at] = actions if type(actions) is np.ndarray else _native.without_torch(actions)
        else:
            map_trees(lambda to, part: to.__setitem__(at, _native.without_torch(part)), self.actions, actions)
        if extras or self.extras is None or self.extras:
            self._act_beside(at, extras)

    def _act_beside(self, at: At, extras: Sequence[np.ndarray]) -> None:
        if self.extras is None:
            rows = (self.steps, self.count)
            self.extras = [_reserve(np.zeros, rows + one.shape[1:], one.dtype) for one in extras]
        if len(extras) != len(self.extras):
            raise InputError(
                f"policy: expected {len(self.extras)} parts beside actions, as in its first call, got {len(extras)}"
            )
        for number, (to, one) in enumerate(zip(self.extras, extras, strict=True), 1):
            if one.shape[1:] != to.shape[2:] or one.dtype != to.dtype:
                raise InputError(
                    f"policy: part {number} of what it returns beside actions: expected {to.dtype} rows of shape "
                    f"{to.shape[2:]}, as in its first call, got {one.dtype} rows of shape {one.shape[1:]}"
                )
            to[at] = one

    def outcome(self, at: At, result: Any) -> None:
        """What came of it, but for the observation."""
        _, reward, terminated, truncated, info = result
        self.rewards[at] = reward
        self.terminated[at] = terminated
        self.truncated[at] = truncated
        if self._same_step or at == 0 or type(at) is tuple:  # with `next_step` the others follow from the ends
            self.reset[at] = info["elapsed_step"] == 0
        if "abnormal" in info:
            self.abnormal[at] = info["abnormal"]
        if "_final_obs" in info:
            self._end(at, info["final_obs"], np.flatnonzero(info["_final_obs"]))

    def _end(self, at: At, finals: np.ndarray, rows: np.ndarray) -> None:
        """The last observations, which only this batch has. Copies: a batch has room for those of all rows."""
        if isinstance(at, int):
            step, env = np.full(len(rows), at), rows
        else:
            step, env = at[0][rows], at[1][rows]
        parts = zip(*(leaves(one) for one in finals[rows]), strict=True)
        self._ends.append(Ends(step, env, [np.stack(part) for part in parts]))

    def fail(self, step: int, envs: Sequence[int]) -> None:
        """The envs were lost in that step: they show what they showed before."""
        for array in (self.truncated, self.abnormal):
            array[step, envs] = True
        for leaf in leaves(self.observations):
            leaf[step + 1, envs] = leaf[step, envs]

    def last_seen(self) -> Any:
        """What the envs showed last, also in the middle of a rollout."""
        steps = np.broadcast_to(self._seen, self.count)
        return map_tree(lambda leaf: leaf[steps, np.arange(self.count)], self.observations)

    # ---- the whole -------------------------------------------------------------------------------

    def paste(self, step: int, envs: Sequence[int], other: Record) -> None:
        """Takes over what another record has of these envs, from that step on."""
        where = slice(envs[0], envs[-1] + 1) if envs[-1] - envs[0] == len(envs) - 1 else list(envs)

        def copy(to: np.ndarray, part: np.ndarray) -> None:
            to[step : step + len(part), where] = part

        map_trees(copy, self.observations, other.observations)
        map_trees(copy, self.actions, other.actions)
        for name in ("rewards", "terminated", "truncated", "reset", "abnormal"):
            copy(getattr(self, name), getattr(other, name))
        extras = other.extras or []
        if self.extras is None:
            rows = (self.steps, self.count)
            self.extras = [_reserve(np.zeros, rows + one.shape[2:], one.dtype) for one in extras]
        if [(one.dtype, one.shape[2:]) for one in extras] != [(one.dtype, one.shape[2:]) for one in self.extras]:
            raise InputError(
                f"policy: expected the same beside actions for all envs, but env {envs[0]} got others than env 0: "
                f"{_forms(extras)} and {_forms(self.extras)}"
            )
        for to, part in zip(self.extras, extras, strict=True):
            copy(to, part)
        ids = np.asarray(envs)
        self._ends += [Ends(one.step + step, ids[one.env], one.leaves) for one in other._ends]

    def rollout(self) -> Rollout:
        """All of it."""
        ended = self.terminated | self.truncated
        if not self._same_step:
            self.reset[1:] = ended[:-1]
        self.reset &= ~ended  # a reset that failed is a failure
        ends = None
        if self._ends:
            parts = zip(*(one.leaves for one in self._ends), strict=True)
            step, env = (np.concatenate([one[i] for one in self._ends]) for i in range(2))
            ends = Ends(step, env, [np.concatenate(part) for part in parts])
        return Rollout(
            observations=map_tree(lambda leaf: leaf[:-1], self.observations),
            actions=self.actions,
            rewards=self.rewards,
            terminated=self.terminated,
            truncated=self.truncated,
            reset=self.reset,
            abnormal=self.abnormal,
            extras=tuple(self.extras or ()),
            last_observation=map_tree(lambda leaf: leaf[-1], self.observations),
            _ends=ends,
        )


def _reserve(make: Callable[..., np.ndarray], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    try:
        return make(shape, dtype)
    except (MemoryError, ValueError) as error:  # ValueError: more than any machine could have
        raise OutOfMemoryError(
            f"rollout: there is no memory for its arrays: {summary(error)}. Make shorter rollouts, one after another: "
            "each goes on where the last one ended"
        ) from error


def _forms(extras: Sequence[np.ndarray]) -> str:
    return ", ".join(f"{one.dtype} of shape {one.shape[2:]}" for one in extras) or "nothing"
