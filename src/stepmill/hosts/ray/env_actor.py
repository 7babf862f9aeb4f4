"""What runs in a Ray actor: a group of envs of a pool, with an engine of their own.

The driver's pool has its own engine, which has checked all that comes here. Envs step in one of two ways: order by
order, as that engine sends actions; or in a rollout, for which they are lent: then their state is here, and that engine
knows nothing of their steps until they go back.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from stepmill import _native
from stepmill._version import __version__
from stepmill.errors import EnvError, ResourceError, StateError, UnsupportedError
from stepmill.hosts.host import open_engine
from stepmill.hosts.observing import stats_of
from stepmill.hosts.open_local_host import open_local_host
from stepmill.hosts.process import outgoing
from stepmill.hosts.process.notes import write_own_note
from stepmill.hosts.process.payload import SourcePayload
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.python_states import BY_FORK
from stepmill.hosts.rollout.plan import Plan
from stepmill.hosts.rollout.play import play
from stepmill.hosts.rollout.policy import Generators, Policy
from stepmill.hosts.rollout.record import Record
from stepmill.hosts.rows import RowFinisher
from stepmill.hosts.shares import Share
from stepmill.settings import Ray, Settings, default_workers
from stepmill.sources.models.fields import ModelChange
from stepmill.system.uninterrupted import uninterrupted
from stepmill.values.saved_states import StateTicket
from stepmill.values.trees import map_tree

VERSION = __version__

# Of `start_timeout`: envs that are slow to build are found here, with their stack, before the caller gives up.
_OWN_SHARE = 0.8
# How long an answer may wait for the last of its rows: a fraction of what a call takes.
_QUICK_S = 2e-4
# How long it may wait for the next one: some calls, or a slow env would hold back those that are done.
_NEXT_S = 1e-2
# From here on copying an answer once more costs more than having Ray pickle it, which carries arrays beside the pickle.
_LARGE = 1 << 16


# ---- what travels besides parcels ----------------------------------------------------------------


class ActorReport(NamedTuple):
    """What an actor tells of itself: the backend that it has chosen, and what its envs are like, pickled.

    Native envs are known to the driver. ``failure`` is what building them raised.
    """

    backend: str
    envs: bytes | None
    failure: bytes | None


class ActorTask(NamedTuple):
    """What an actor is to build."""

    payload: SourcePayload
    settings: Settings
    first: int  # env, of those of the whole pool
    model_changes: dict[int, ModelChange]  # what was set while another actor had these envs
    finisher: type[RowFinisher]  # of the driver: it says how infos travel


class RolloutOrder(NamedTuple):
    """What goes to an actor beside the policy. Its envs are counted from the actor's first one, ``first``."""

    states: bytes
    env_ids: Sequence[int]
    first: int
    rollout: int  # which one of the pool
    observation: Any
    plan: Plan
    goes_on: bool  # with the policy and the random numbers of these envs' last order
    is_last: bool  # of these envs in this rollout


class RolloutAnswer(NamedTuple):
    """What comes back: the states in any case, and the record, or what was raised and what the envs show."""

    states: bytes
    record: Record | None
    observation: Any
    failure: bytes | None


class PausedPolicy(NamedTuple):
    """A policy between two orders of a rollout: it may have a memory."""

    policy: Policy
    generators: Generators


def task_for(
    payload: SourcePayload,
    settings: Settings,
    share: Share,
    workers: int,
    model_changes: dict[int, ModelChange],
    finisher: type[RowFinisher],
) -> bytes:
    """How an actor runs its envs: on the best backend of its node; results are taken as they are ready."""
    count = share.last - share.first
    its = replace(
        settings,
        backend="process" if settings.only_processes else "auto",
        num_envs=count,
        batch_size=count,
        num_workers=workers_of(settings, count, workers),
        num_threads=min(workers, count),
        seed=settings.seed[share.first : share.last],
        as_ready=True,
        in_step=settings.waits_for_all,
        start_timeout=_OWN_SHARE * settings.start_timeout,
        ray=Ray(),
    )
    return pickle.dumps(ActorTask(payload, its, share.first, model_changes, finisher))


def workers_of(settings: Settings, count: int, cores: int) -> int:
    """How many worker processes an actor has for its ``count`` envs, if they need some."""
    workers = settings.num_workers or default_workers(count, waits_for_all=settings.waits_for_all, cores=cores)
    return min(workers, count)


# ---- the actor -----------------------------------------------------------------------------------


class EnvActor:
    """Envs, and the engine that steps them. Ray makes an actor of it.

    Ray calls ``ping`` and ``call_off`` on one thread and all other methods on another one, in the order in which they
    were sent.
    """

    _first = 0
    _called_off = -1  # written by one thread, read by the other: rollouts up to this one are to end

    def __init__(self, version: str, task: bytes) -> None:
        """Does not build anything: ``describe`` does, on the thread on which the envs are used."""
        self._version, self._task = version, task
        self._paused: dict[tuple[int, int], PausedPolicy] = {}  # by rollout, and the first env of their last order

    def describe(self) -> ActorReport:
        """Builds the envs, and tells what the caller has to know about them.

        Does not raise: Ray would make a text of the exception.
        """
        try:
            self._build()
        except BaseException as error:
            return ActorReport("", None, self._described(error))
        envs = None if self._host.is_native else outgoing.pickled(self._host.described)
        return ActorReport(self._host.backend, envs, None)

    def _build(self) -> None:
        if self._version != VERSION:  # first of all: nothing else can be read
            raise ResourceError(
                f"a node of the cluster has stepmill {VERSION}, and the caller {self._version}: install the same on all"
            )
        payload, settings, self._first, model_changes, finisher = pickle.loads(self._task)
        self._engine: _native.Engine = open_engine(open_local_host(payload.source(), settings, finisher), settings)
        self._host = self._engine.host
        self._states = ActorStates(self._host)
        # Whoever waits for all envs has no use for some of them.
        self._patience = None if settings.waits_for_all else _NEXT_S
        is_inline = self._host.backend == "inline" and not self._host.is_native
        if is_inline:
            self._host.keeps_former, self._host.state_advice = True, BY_FORK
        in_python = (functools.partial(_read_mail, self._host), write_own_note) if is_inline else (None, None)
        self._parcels = _native.ParcelServer(self._engine, *in_python)
        if model_changes:
            self._host.ask_models("set_model", list(model_changes.values()), list(model_changes))

    def ping(self) -> None:
        """A sign of life."""

    def call_off(self, rollout: int) -> None:
        """Ends a rollout before its policy is asked again, whether it has begun or waits for its turn."""
        self._called_off = rollout

    def exchange(self, order: bytes) -> bytes | np.ndarray:
        """Starts envs, if the order has some, and answers with the rows that are ready first, whichever was sent when.

        It does so as soon as no more envs are still at work than the order spares. Quick ones are waited for all the
        same: a driver who is told of nearly all that it sent has no whole batch, and waits for one more call. Slow ones
        are not, if nothing else comes: others may wait behind them, in the same worker, and other orders behind this
        one. Then the answer has few rows, or none.

        Ray carries bytes as they are. Anything else it pickles, and looks through for references: a fifth of what a
        small call costs.
        """
        self._states.forget()
        try:
            answer = self._parcels.exchange(order, _QUICK_S, self._patience)
        except KeyboardInterrupt as error:
            raise _not_the_callers(error) from error
        return answer if len(answer) < _LARGE else np.frombuffer(answer, np.uint8)

    # ---- rollouts ----------------------------------------------------------------------------

    def rollout(self, pickled_policy: bytes, order: RolloutOrder) -> RolloutAnswer:
        """Plays with the envs of an order. Raises only if the states cannot be had back: then the envs are lost."""
        self._parcels.take_states(order.states)
        record: Record | None = None
        try:
            record = Record(order.plan, len(order.env_ids), order.observation, self._host.action.space)
            record.see(0, order.observation)
            self._play(pickled_policy, order, record)
        except BaseException as error:  # whatever a policy raises belongs to the caller, also a SystemExit
            shown = order.observation if record is None else record.last_seen()
            return RolloutAnswer(self._parcels.give_states(order.env_ids), None, shown, self._described(error))
        return RolloutAnswer(self._parcels.give_states(order.env_ids), record, None, None)

    def _play(self, pickled_policy: bytes, order: RolloutOrder, record: Record) -> None:
        here = self._take_policy(pickled_policy, order)
        observation = map_tree(np.array, order.observation)  # Ray's arrays cannot be written to

        def policy(*arguments: Any) -> Any:
            if self._called_off >= order.rollout:  # the driver has no use for the rest
                raise KeyboardInterrupt
            return here.policy(*arguments)

        if hasattr(here.policy, "begin"):
            policy.begin = here.policy.begin  # type: ignore[attr-defined]
        play(self._engine, policy, order.plan, observation, record, order.env_ids, order.first, here.generators)
        if not order.is_last:
            self._paused[order.rollout, order.env_ids[0]] = here

    def _take_policy(self, pickled_policy: bytes, order: RolloutOrder) -> PausedPolicy:
        """The policy of an order. Policies of a rollout that was given up stay until the next one."""
        paused = self._paused.pop((order.rollout, order.env_ids[0]), None)
        for key in [one for one in self._paused if one[0] != order.rollout]:
            del self._paused[key]
        if order.goes_on and paused is not None:
            return paused
        return PausedPolicy(cloudpickle.loads(pickled_policy), Generators(order.plan.seed, order.plan.begin))

    # ---- everything else ---------------------------------------------------------------------

    def ask(self, pickled_arguments: bytes, method: str) -> bytes:
        """Calls a method of the host, or of ``ActorStates``: (whether it went well, its value or what it raised)."""
        try:
            arguments = pickle.loads(pickled_arguments)
            if method != "put_back":
                self._states.forget()
            owner = self._states if hasattr(self._states, method) else self._host
            value = self._engine.use(getattr(owner, method), *arguments)
            return outgoing.pickled_answer(f"{method} {arguments[0]!r}", value)
        except BaseException as error:
            return pickle.dumps((False, self._described(error)))

    def stats(self) -> dict[str, Any]:
        """What its engine counts."""
        import ray  # which this process was started by

        node_id = ray.get_runtime_context().get_node_id()
        where = {"node": socket.gethostname(), "node_id": node_id, "pid": os.getpid(), "backend": self._host.backend}
        return {**where, **stats_of(self._engine)}

    def close(self) -> bytes | None:
        """Closes the envs. Returns what they raised, if anything."""
        try:
            if hasattr(self, "_states"):
                self._states.forget()
                self._engine.close()
        except BaseException as error:
            return self._described(error)
        return None

    def _described(self, error: BaseException) -> bytes:
        """An exception on its way to the caller."""
        if isinstance(error, KeyboardInterrupt):
            error = _not_the_callers(error)
        if isinstance(error, EnvError):
            error = EnvError.gather([self._moved(one) for one in error.errors])
        elif isinstance(error, StateError | UnsupportedError | ResourceError):  # they name an env only in their text
            text = re.sub(r"\benv (\d+)", lambda found: f"env {self._first + int(found[1])}", str(error), count=1)
            more = (error.errno,) if isinstance(error, ResourceError) else ()
            moved = type(error)(text, *more).with_traceback(error.__traceback__)
            moved.__cause__ = error.__cause__
            error = moved
        return describe(error)

    def _moved(self, error: EnvError) -> EnvError:
        """An error with the number that its env has for the caller."""
        if error.env_id is None:
            return error
        there = self._first + error.env_id
        moved = type(error)(
            str(error).replace(f"env {error.env_id}", f"env {there}", 1),
            env_id=there,
            phase=error.phase,
            episode=error.episode,
            step=error.step,
        )
        moved.__cause__ = error.__cause__
        moved.__traceback__ = error.__traceback__
        return moved


class ActorStates:
    """Saves the envs of an actor, and gives them states. It keeps what they were until the caller goes on.

    States by fork are processes of this actor: the caller has tickets for them, and says which ones it still has.
    """

    def __init__(self, host: Any) -> None:
        self._host = host
        self._given: Sequence[int] = ()
        self._former: list[Any] = []
        self._clones: dict[bytes, object] = {}  # by ticket
        if hasattr(host, "clones"):
            host.clones.where = " in a Ray actor"

    def forget(self) -> None:
        """All actors have taken their states: the envs do not go back any more."""
        if self._given and self._host.backend == "process":
            self._host.install_successors()
        self._given, self._former = (), []

    def state_kind(self, env_ids: Sequence[int]) -> list[str]:
        """That of Python envs."""
        return [self._host.state_kind] * len(env_ids)

    def fingerprint(self, env_ids: Sequence[int]) -> list[str]:
        return [self._host.fingerprint(one) for one in env_ids]

    def save_envs(self, env_ids: Sequence[int], by: str | None, limits: tuple[int, int | None]) -> list[bytes]:
        """``limits``: how many clones there may be, and their memory."""
        if hasattr(self._host, "clones"):
            self._host.clones.limit, self._host.clones.memory = limits
        elif by == "fork":
            raise UnsupportedError(
                "save: by='fork' copies the process of an env, and the envs of this actor have none of their own: use "
                "num_workers=num_envs"
            )
        saved = self._host.save_envs(env_ids, by)
        self._clones |= {bytes(one): one.keeper for one in saved if isinstance(one, StateTicket)}
        return [bytes(one) for one in saved]

    def keep_clones(self, tickets: Sequence[bytes]) -> None:
        """The caller has these: the others end."""
        self._clones = {one: self._clones[one] for one in tickets if one in self._clones}

    def load_envs(self, env_ids: Sequence[int], states: list[bytes]) -> None:
        self.forget()
        self._given = env_ids
        self._host.load_envs(env_ids, states, self._former)

    def put_back(self, env_ids: Sequence[int]) -> None:
        """Unless they were given nothing: what an earlier call has given to other envs stays theirs."""
        given, former = self._given, self._former
        if list(env_ids) == list(given):
            self._given, self._former = (), []
            uninterrupted(lambda _: self._host.put_back(given, former))


def _not_the_callers(error: KeyboardInterrupt) -> EnvError:
    """Here nobody presses Ctrl-C: an env has raised it itself, or a policy."""
    raised = EnvError("an env or a policy raised KeyboardInterrupt")
    raised.__cause__ = error
    return raised.with_traceback(error.__traceback__)


def _read_mail(host: Any, env_id: int, mail: bytes) -> Any:
    """What a worker process would read. What this node cannot read fails the env, as it would there."""
    try:
        options, objects, preparation = pickle.loads(mail)
    except Exception as error:
        host.fail_next(env_id, error)
        return None
    if preparation is not None:
        host.prepare(preparation, [env_id])
    return options if objects is None else objects
