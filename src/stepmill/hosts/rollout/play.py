"""The loop of everything that plays: a policy is asked, its actions are sent, and what comes back goes to it again.

``pool.rollout`` and Ray's actors write what happens into a record, ``play`` below; ``pool.play`` shows it to the user,
see ``steps.py``.
"""

from __future__ import annotations

import contextlib
import operator
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from stepmill import _native
from stepmill.errors import EnvError, InputError
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.policy import Generators, Policy, PolicyCaller, blamed
from stepmill.hosts.rollout.record import Record
from stepmill.values.trees import map_tree, map_trees, tree_of


def drain(engine: _native.Engine) -> None:
    """Waits for what is in flight, of a rollout that was interrupted, and drops it."""
    while not engine.closed and engine.in_flight_count:
        with contextlib.suppress(EnvError):
            engine.recv(None)


# Both are plain tuples, which cost a tenth of what named ones do: with cheap envs that would be felt.
# What envs show that wait for actions, a row per env or per player; their ids; the env of each row, for the policy.
Rows = tuple[Any, np.ndarray, np.ndarray]
# Ids of envs, and what the policy returned for them: actions and extras.
Sent = tuple[np.ndarray, Any, list[np.ndarray]]


class Turn:
    """One exchange with the engine.

    Attributes:
        sent: What was sent since the last turn. In async mode, not all of it has come back.
        result: What came back, as the engine shows it plainly.
        env_ids: The envs of the result, as the engine counts them.
        seconds: How long it took to send the last actions, and to wait.
        error: What envs raised, if the player goes on in spite of it.
        goes_on: The rows of the envs that go on; None: all. To be set before the next turn.
        resets: Envs to reset first, and their seeds. To be set before the next turn.
    """

    __slots__ = ("env_ids", "error", "goes_on", "resets", "result", "seconds", "sent")

    def __init__(self, sent: list[Sent], result: Any, seconds: float, error: EnvError | None) -> None:
        self.sent, self.result, self.seconds, self.error = sent, result, seconds, error
        self.env_ids: np.ndarray = result[4]["env_id"]
        self.env_ids.flags.writeable = False  # a policy sees it, and actions are sent by it
        self.goes_on: np.ndarray | None = None
        self.resets: tuple[Sequence[int], Sequence[int | None] | None] | None = None


class Player:
    """Plays envs of one engine with a policy.

    Args:
        engine: Shows its results plainly, see ``Engine.plainly``.
        caller: Asks the policy.
        batch_size: How many envs make a batch; None if all envs step together.
        first: The number by which the policy knows the engine's first env.
        keeps_on: Whether to go on if envs raise errors. Their next action resets them.
    """

    def __init__(
        self,
        engine: _native.Engine,
        caller: PolicyCaller,
        batch_size: int | None,
        first: int = 0,
        *,
        keeps_on: bool = False,
    ) -> None:
        self._engine, self._caller, self._batch_size, self._keeps_on = engine, caller, batch_size, keeps_on
        self._begin = caller.begin
        host = engine.host
        self._has_players = host.num_players > 1
        self._objects = tree_of(host.observation.space) if host.observation.object_spaces else None
        self._first = np.int32(first)

    def turns(self, observation: Any = None, env_ids: np.ndarray | None = None) -> Iterator[Turn]:
        """Plays until no env goes on. Nothing but resets may be in flight.

        Args:
            observation: What envs show that wait for actions: rows in the order of ``env_ids``.
            env_ids: Their ids. None if none waits.
        """
        ready = [] if env_ids is None else self._split(observation, env_ids)
        while True:
            sent: list[Sent] = []
            asked = time.perf_counter()
            for shown, ids, owners in ready:
                actions, extras = self._caller(shown, owners)
                sent.append((ids, actions, extras))
                asked = time.perf_counter()
                self._send(actions, ids, owners)
            if not self._engine.in_flight_count:
                return
            result, error = self._receive()
            turn = Turn(sent, result, time.perf_counter() - asked, error)
            yield turn
            if turn.resets is not None:  # first: in sync mode envs are reset only while none is in flight
                self._engine.send_reset(*turn.resets, None)
            ready = self._ready_after(turn)

    def _split(self, observation: Any, env_ids: np.ndarray) -> list[Rows]:
        """Batches of envs that wait, to begin with."""
        size = self._batch_size or len(env_ids)
        parts = [slice(at, at + size) for at in range(0, len(env_ids), size)]
        shown = env_ids + self._first
        shown.flags.writeable = False
        return [(map_tree(operator.itemgetter(part), observation), env_ids[part], shown[part]) for part in parts]

    def _send(self, actions: Any, env_ids: np.ndarray, owners: np.ndarray) -> None:
        if self._has_players:
            actions = {"action": actions, "players.env_id": owners}
        try:
            self._engine.send(actions, env_ids)
        except InputError as invalid:
            raise blamed(invalid) from None

    def _receive(self) -> tuple[Any, EnvError | None]:
        error: EnvError | None = None
        try:
            if self._batch_size is None:
                result = self._engine.recv(None)
            else:
                result = self._engine.recv_some(self._batch_size, self._batch_size, None)
        except EnvError as failed:
            if not self._keeps_on or failed.batch is None:
                raise
            result, error = failed.batch, failed
        if self._begin is not None:
            self.tell_begun(result[4])
        return result, error

    def tell_begun(self, info: dict[str, Any]) -> None:
        """Tells a policy with a memory which episodes start."""
        begun = info["elapsed_step"] == 0
        if "abnormal" in info:
            begun &= ~info["abnormal"]
        if begun.any() and self._begin is not None:
            self._begin(info["env_id"][begun] + self._first)

    def _ready_after(self, turn: Turn) -> list[Rows]:
        """The envs of a turn that wait for actions."""
        observation, env_ids = turn.result[0], turn.env_ids
        owners = turn.result[4]["players"]["env_id"] if self._has_players else env_ids
        owners.flags.writeable = False
        if self._objects is not None:
            observation = map_trees(lambda _, part: _as_array(part), self._objects, observation)
        if turn.goes_on is not None:
            env_ids = env_ids[turn.goes_on]
            kept = np.isin(owners, env_ids) if self._has_players else turn.goes_on
            observation, owners = map_tree(operator.itemgetter(kept), observation), owners[kept]
        if self._first:
            owners = owners + self._first
        return [(observation, env_ids, owners)] if len(env_ids) else []


def _as_array(part: Any) -> np.ndarray:
    """Texts, graphs and sequences as an array of objects, one per row: it can be indexed like the others."""
    if isinstance(part, np.ndarray):
        return part
    array = np.empty(len(part), object)
    for row, one in enumerate(part):
        array[row] = one
    return array


# ---- rollouts --------------------------------------------------------------------------------------


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
        env_ids: The ids in the engine; all of them, in order, if they step together.
        first: The number by which the policy knows the engine's first env.
        generators: Those of an earlier part of the rollout; otherwise the plan says what numbers are drawn.
    """
    generators = Generators(plan.seed, plan.begin) if generators is None else generators
    caller = PolicyCaller(policy, engine.host.action.space, generators)
    ids = np.asarray(env_ids, np.int32)
    try:
        if plan.begins and caller.begin is not None:
            caller.begin(ids + np.int32(first))
        record.see(0, observation)
        player = Player(engine, caller, plan.batch_size, first)
        if plan.batch_size is None:
            _record_together(engine, player, caller, observation, ids + np.int32(first), plan.steps, record)
        else:
            _record_as_ready(player.turns(observation, ids), ids, plan.steps, record)
    finally:
        drain(engine)


def _record_together(
    engine: _native.Engine,
    player: Player,
    caller: PolicyCaller,
    observation: Any,
    shown: np.ndarray,
    steps: int,
    record: Record,
) -> None:
    """Turns that are one step of all envs each: with cheap envs, what is left out here would be felt."""
    shown.flags.writeable = False
    step, begin = engine.step_all, caller.begin
    for at in range(steps):
        actions, extras = caller(observation, shown)
        try:
            result = step(actions)
        except InputError as invalid:
            raise blamed(invalid) from None
        record.step(at, actions, extras, result)
        observation = result[0]
        if begin is not None:
            player.tell_begun(result[4])


def _record_as_ready(turns: Iterator[Turn], env_ids: np.ndarray, steps: int, record: Record) -> None:
    """Each env goes on as soon as it is among the first that are ready, until it has made its steps."""
    done = np.zeros(len(env_ids), np.int64)  # steps of each env of the record
    place = np.zeros(int(env_ids.max()) + 1, np.int64)  # by env: where it is in the record
    place[env_ids] = np.arange(len(env_ids))
    last, now, places = None, done, done
    for turn in turns:
        for ids, actions, extras in turn.sent:
            if ids is not last:  # in most turns the envs of the last one, all of them
                places = place[ids]
                now = done[places]
            record.act((now, places), actions, extras)
        last = turn.env_ids
        places = place[last]
        now = done[places]
        record.outcome((now, places), turn.result)
        done[places] = now = now + 1
        record.see((now, places), turn.result[0])
        goes_on = now < steps
        if not goes_on.all():
            turn.goes_on = goes_on
