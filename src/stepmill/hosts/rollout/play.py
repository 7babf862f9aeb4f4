"""The loop of a rollout, for the envs of one engine: in the user's process, or where the envs live."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from stepmill import _native
from stepmill.errors import EnvError, InputError
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.policy import Generators, Policy, PolicyCaller, Rows
from stepmill.hosts.rollout.record import Record
from stepmill.values.trees import map_tree

__all__ = ["drain", "play"]


def play(
    engine: _native.Engine,
    policy: Policy,
    plan: Plan,
    observation: Any,
    record: Record,
    env_ids: Sequence[int],
    first: int = 0,
    generators: Generators | None = None,
) -> None:
    """Steps these envs of an engine, of which none is in flight, and leaves none in flight, whatever is raised.

    Args:
        engine: Shows its results plainly, see ``Engine.plainly``.
        policy: What the user passed.
        plan: The rest of it.
        observation: What the envs show now: rows in the order of ``env_ids``. The policy may write into it.
        record: Where it is all written down.
        env_ids: As the engine counts them; all of them, in order, if they step together.
        first: What the policy knows the engine's first env as.
        generators: Those of an earlier part of the rollout; otherwise the plan says what numbers are drawn.
    """
    generators = Generators(plan.seed, plan.begin) if generators is None else generators
    caller = PolicyCaller(policy, engine.host.action.space)
    try:
        if plan.batch_size is None:
            _play_together(engine, caller, plan, observation, record, first, generators)
        else:
            _AsReady(engine, caller, plan, record, np.asarray(env_ids, np.int32), first, generators).play(observation)
    finally:
        drain(engine)


def drain(engine: _native.Engine) -> None:
    """Waits for what is in flight, of a rollout that was interrupted, and drops it."""
    while not engine.closed and engine.in_flight_count:
        with contextlib.suppress(EnvError):
            engine.recv(None)


def _play_together(
    engine: _native.Engine,
    caller: PolicyCaller,
    plan: Plan,
    observation: Any,
    record: Record,
    first: int,
    generators: Generators,
) -> None:
    env_ids = np.arange(first, first + record.count, dtype=np.int32)
    env_ids.flags.writeable = False
    rngs = Rows(generators, env_ids)
    step = engine.step_all
    record.see(0, observation)
    for at in range(plan.steps):
        actions, extras = caller(observation, env_ids, rngs)
        try:
            result = step(actions)
        except InputError as error:
            raise caller.blamed(error) from None
        record.step(at, actions, extras, result)
        observation = result[0]


class _AsReady:
    """Each env goes on as soon as it is among the first that are ready."""

    def __init__(
        self,
        engine: _native.Engine,
        caller: PolicyCaller,
        plan: Plan,
        record: Record,
        env_ids: np.ndarray,
        first: int,
        generators: Generators,
    ) -> None:
        assert plan.batch_size is not None
        self._engine, self._caller, self._record = engine, caller, record
        self._env_ids, self._first = env_ids, first
        self._steps, self._batch_size = plan.steps, plan.batch_size
        self._generators = generators
        self._done = np.zeros(len(env_ids), np.int64)  # steps of each env of the record
        self._place = np.zeros(int(env_ids.max()) + 1, np.int64)  # by env: where it is in the record
        self._place[env_ids] = np.arange(len(env_ids))

    def play(self, observation: Any) -> None:
        count = len(self._env_ids)
        for begin in range(0, count, self._batch_size):
            part = slice(begin, begin + self._batch_size)
            places = np.arange(count)[part]
            rows = map_tree(operator.itemgetter(part), observation)
            self._record.see((0, places), rows)
            self._act(rows, places)
        while self._engine.in_flight_count:
            result = self._engine.recv_some(self._batch_size, self._batch_size, None)
            places = self._place[result[4]["env_id"]]
            done = self._done[places]
            self._record.outcome((done, places), result)
            self._done[places] = done = done + 1
            observation = result[0]
            self._record.see((done, places), observation)
            goes_on = done < self._steps
            if not goes_on.all():
                observation, places = map_tree(operator.itemgetter(goes_on), observation), places[goes_on]
            if len(places):
                self._act(observation, places)

    def _act(self, observation: Any, places: np.ndarray) -> None:
        env_ids = self._env_ids[places]
        shown = env_ids + np.int32(self._first)
        actions, extras = self._caller(observation, shown, Rows(self._generators, shown))
        try:
            self._engine.send(actions, env_ids)
        except InputError as error:
            raise self._caller.blamed(error) from None
        self._record.act((self._done[places], places), actions, extras)
