"""Where a rollout starts, who plays it, and where the next one goes on."""

from __future__ import annotations

from typing import Any

import numpy as np

from stepmill import _native
from stepmill.errors import InFlightError, InputError, UnsupportedError, UsageError
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.play import drain, play
from stepmill.hosts.rollout.policy import Policy, check_policy
from stepmill.hosts.rollout.record import Record
from stepmill.hosts.rollout.result import Rollout
from stepmill.settings import Settings
from stepmill.values.arguments import whole_number
from stepmill.values.fitting import Misfit, array_of, fit
from stepmill.values.trees import map_tree, map_trees, tree_of


class Rollouts:
    """The rollouts of one pool, one after another."""

    def __init__(self, engine: _native.Engine, settings: Settings) -> None:
        self._engine, self._settings = engine, settings
        self._host = engine.host
        self._is_elsewhere = hasattr(self._host, "play")  # the envs are, and policies go there
        self._number = 0
        self._has_begun = False
        self._remembering: Policy | None = None  # the last policy, if it has a memory of these envs' episodes
        self._last: tuple[int, Any] | None = None  # after the last one: the rows received, and what the envs showed

    @property
    def memory(self) -> tuple[Any, ...]:
        """Where the next rollout goes on. A policy is not part of it."""
        return self._number, self._has_begun, self._last

    @memory.setter
    def memory(self, memory: tuple[Any, ...]) -> None:
        self._number, self._has_begun, self._last = memory

    def __call__(self, policy: Policy, steps: int, seed: int | None, observation: Any) -> Rollout:
        self._engine.check_usable()
        self._check_pool()
        check_policy(policy, "rollout")
        steps = whole_number("rollout: steps", steps, 1)
        seed = self._number if seed is None else whole_number("rollout: seed", seed, 0)
        begins = policy is not self._remembering
        if observation is not None:
            observation, begins = self._checked(observation), True
        elif self._has_begun or self._engine.rows_received:
            observation = self._where_it_ended()
        if self._engine.in_flight_count:
            raise InFlightError("rollout: envs are in flight: recv() their results first, or reset() all envs")
        self._remembering = None
        sent = self._host.pack_policy(policy) if self._is_elsewhere else policy  # before anything changes
        rollout: Rollout = self._engine.plainly(self._roll_out, sent, steps, seed, observation, begins)
        self._number += 1
        self._remembering = policy if hasattr(policy, "begin") else None
        return rollout

    def _check_pool(self) -> None:
        if self._settings.autoreset == "disabled":
            raise UnsupportedError(
                "rollout: with autoreset='disabled' nobody would reset an env whose episode is over: make the pool "
                "with autoreset='next_step' or 'same_step'"
            )
        if self._host.num_players > 1:
            raise UnsupportedError(
                "rollout: these envs have several players, whose rows differ from step to step: use step, or send and "
                "recv"
            )
        if any(space.object_spaces for space in (self._host.observation, self._host.action)):
            raise UnsupportedError(
                "rollout: the observations or actions of these envs have parts that are no arrays (text, graphs, "
                "sequences): use step, or send and recv"
            )

    def _checked(self, observation: Any) -> Any:
        """A copy of the user's, in the types of the space."""
        count = self._settings.num_envs

        def array(space: Any, given: Any) -> np.ndarray:
            shape = (count, *space.shape)
            return array_of(shape, np.dtype(space.dtype), _native.without_torch(given), copy=True)

        flat = self._host.observation
        form = map_trees(lambda _, space: space, flat.tree, tree_of(flat.space))  # in the order of the engine's results
        try:
            return fit(array, form, observation)
        except Misfit as misfit:
            raise InputError(misfit.message("rollout: observation")) from None

    def _where_it_ended(self) -> Any:
        moves_unseen = getattr(self._host, "moves_unseen", False)  # by a CUDA graph
        if self._last is None or self._last[0] != self._engine.rows_received or moves_unseen:
            since = "the last rollout ended" if self._last is not None else "the pool was made"
            raise UsageError(
                f"rollout: envs have moved since {since}, and what they show now is not known: pass it, "
                "rollout(..., observation=obs), with a row for every env, from reset() or step()"
            )
        return map_tree(np.copy, self._last[1])

    def _roll_out(self, policy: Any, steps: int, seed: int, observation: Any, begins: bool) -> Rollout:
        settings, engine = self._settings, self._engine
        self._has_begun, self._last = True, None
        if observation is None:
            observation = self._after_reset()
        self._last = engine.rows_received, observation  # if there is no memory for what follows, it can be tried again
        batch_size = settings.batch_size if settings.is_async else None
        plan = Plan(steps, seed, 0, batch_size, settings.reward_dtype, settings.autoreset == "same_step", begins)
        record = Record(plan, settings.num_envs, observation, self._host.action.space)
        self._last = None
        before = engine.rows_received
        if self._is_elsewhere:
            engine.use(self._host.play, policy, plan, observation, record)
            rollout = record.rollout()
            ended = (rollout.terminated | rollout.truncated) & ~rollout.abnormal
            engine.count_elsewhere(rollout.rewards.size, int(ended.sum()), int(rollout.abnormal.sum()))
        else:
            play(engine, policy, plan, observation, record, range(settings.num_envs))
            rollout = record.rollout()
            engine.count_elsewhere(0, 0, 0)
        if engine.rows_received != before + steps * settings.num_envs:
            raise UsageError(
                "rollout: the policy stepped or reset envs of the pool that asks it: it can only return actions"
            )
        self._last = engine.rows_received, map_tree(np.copy, rollout.last_observation)
        return rollout

    def _after_reset(self) -> Any:
        try:
            observation, _ = self._engine.reset(None, None, None)
        finally:
            drain(self._engine)
        return observation
