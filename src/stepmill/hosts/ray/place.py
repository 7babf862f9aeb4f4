"""A group of envs of a pool, where they live: in a process of another machine, with an engine of their own.

Ray makes an actor of ``Place``. The pool of the caller has its own engine, which has checked all that comes here.
"""

from __future__ import annotations

import os
import pickle
import socket
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle

from stepmill import _native
from stepmill._version import __version__
from stepmill.errors import EnvError, ResourceError
from stepmill.hosts.host import Preparation, open_engine
from stepmill.hosts.observing import stats_of
from stepmill.hosts.open_local_host import open_local_host
from stepmill.hosts.process import outgoing
from stepmill.hosts.process.notes import write_note
from stepmill.hosts.process.payload import SourcePayload
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.ray.letters import Answer, Letter, Order
from stepmill.hosts.ray.visit import Return, Trip, Visitors, visit
from stepmill.hosts.rows import RowFinisher
from stepmill.hosts.shares import Share
from stepmill.registry.description import EnvDescription
from stepmill.settings import Ray, Settings, default_workers
from stepmill.sources.models.fields import ModelChange

__all__ = ["VERSION", "Described", "Place", "description_of", "instructions_for", "workers_of"]

VERSION = __version__

# Of `start_timeout`: envs that are slow to build are found here, with their stack, before the caller gives up.
_OWN_SHARE = 0.8
# How long an answer may wait for the last of its rows: a fraction of what a call takes.
_QUICK_S = 2e-4
# How long it may wait for the next one: some calls, or a slow env would hold back those that are done.
_NEXT_S = 1e-2


class Described(NamedTuple):
    """What an actor tells of itself: the backend that it has chosen, and what its envs are like, pickled.

    Native envs are known to the caller. ``failure`` is what building them raised.
    """

    backend: str
    envs: bytes | None
    failure: bytes | None


class Instructions(NamedTuple):
    """What a place is to build."""

    payload: SourcePayload
    settings: Settings
    first: int  # env, of those of the whole pool
    model_changes: dict[int, ModelChange]  # what was set while another actor had these envs
    finisher: type[RowFinisher]  # of the caller: it says how infos travel


def instructions_for(
    payload: SourcePayload,
    settings: Settings,
    share: Share,
    workers: int,
    model_changes: dict[int, ModelChange],
    finisher: type[RowFinisher],
) -> bytes:
    """How a place runs its envs: on the best backend of its node; results are taken as they are ready."""
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
    return pickle.dumps(Instructions(payload, its, share.first, model_changes, finisher))


def workers_of(settings: Settings, count: int, cores: int) -> int:
    """How many worker processes an actor with so many envs and cores has, if its envs need some."""
    workers = settings.num_workers or default_workers(count, waits_for_all=settings.waits_for_all, cores=cores)
    return min(workers, count)


class Place:
    """The envs, and the engine that steps them.

    Ray calls ``ping`` and ``call_off`` on one thread and all other methods on another one, in the order in which they
    were sent.
    """

    _first = 0
    _called_off = -1  # written by one thread, read by the other: rollouts up to this one are to end

    def __init__(self, version: str, instructions: bytes) -> None:
        """Does not build anything: ``describe`` does, on the thread on which the envs are used."""
        self._version, self._instructions = version, instructions
        self._visitors: Visitors = {}

    def describe(self) -> Described:
        """Builds the envs, and tells what the caller has to know about them.

        Does not raise: Ray would make a text of the exception.
        """
        try:
            self._build()
        except BaseException as error:
            return Described("", None, self._described(error))
        envs = None if self._host.is_native else outgoing.pickled(self._host.described)
        return Described(self._host.backend, envs, None)

    def _build(self) -> None:
        if self._version != VERSION:  # first of all: nothing else can be read
            raise ResourceError(
                f"a node of the cluster has stepmill {VERSION}, and the caller {self._version}: install the same on all"
            )
        payload, settings, self._first, model_changes, finisher = pickle.loads(self._instructions)
        self._engine: _native.Engine = open_engine(open_local_host(payload.source(), settings, finisher), settings)
        self._host = self._engine.host
        self._parcels = _native.ParcelServer(self._engine)
        # Whoever waits for all envs has no use for some of them.
        self._patience = None if settings.waits_for_all else _NEXT_S
        self._is_inline = self._host.backend == "inline" and not self._host.is_native
        if model_changes:
            self._host.ask_models("set_model", list(model_changes.values()), list(model_changes))

    def ping(self) -> None:
        """A sign of life."""

    def call_off(self, rollout: int) -> None:
        """Ends a rollout before its policy is asked again, whether it has begun or waits for its turn."""
        self._called_off = rollout

    def exchange(self, letter: bytes) -> Letter:
        """Starts envs, if the order has some, and returns the rows that are ready first, whichever was sent when.

        It does so as soon as no more than ``spare`` envs are still at work. Quick ones are waited for all the same: a
        caller who is told of nearly all that it sent has no whole batch, and waits for one more call. Slow ones are
        not, if nothing else comes: others may wait behind them, in the same worker, and other orders behind this one.
        Then the answer has few rows, or none.
        """
        spare, parcel, objects, options = Order.read(letter)
        if parcel is not None:
            if self._is_inline:
                objects, options = self._read_mail(objects, options)
            self._parcels.send(parcel, objects, options)
        at_work = self._engine.in_flight_count
        if not at_work:  # an order or an answer was lost on its way: nothing would ever come
            raise RuntimeError("its caller waits for envs that have nothing to do")
        try:
            answer = self._parcels.recv(at_work, max(1, at_work - spare), _QUICK_S, self._patience)
        except KeyboardInterrupt as error:
            raise _not_the_callers(error) from error
        if answer is None:
            return Answer(None, [], []).written()
        parcel, notes, faults = answer
        if self._host.backend != "process":  # worker processes have written theirs
            notes = [_written(*note) for note in notes]
        return Answer(parcel, notes, faults).written()

    def rollout(self, pickled_policy: bytes, trip: Trip) -> Return:
        """See ``visit``."""
        return visit(
            self._engine,
            pickled_policy,
            trip,
            self._visitors,
            is_called_off=lambda: self._called_off >= trip.rollout,
            described=self._described,
        )

    def _read_mail(self, objects: dict[int, bytes], options: dict[int, bytes]) -> tuple[dict[int, Any], dict[int, Any]]:
        """What a worker process would read."""
        read_objects, read_options = {}, {}
        for env_id, mail in options.items():
            read_options[env_id], _, preparation = self._read_one(env_id, mail)
            if preparation is not None:
                self._host.prepare(preparation, [env_id])
        for env_id, mail in objects.items():
            _, read_objects[env_id], _ = self._read_one(env_id, mail)
        return read_objects, read_options

    def _read_one(self, env_id: int, mail: bytes) -> tuple[Any, Any, Preparation | None]:
        """Options, objects and preparation. What this node cannot read fails the env, as it would in a worker."""
        try:
            read: tuple[Any, Any, Preparation | None] = pickle.loads(mail)
        except Exception as error:
            self._host.fail_next(env_id, error)
            return None, None, None
        return read

    def ask(self, pickled_arguments: bytes, method: str) -> bytes:
        """Calls a method of the host: (whether it went well, its value or what it raised), pickled."""
        try:
            arguments = pickle.loads(pickled_arguments)
            value = self._engine.use(getattr(self._host, method), *arguments)
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
            if hasattr(self, "_engine"):
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
        return describe(error)

    def _moved(self, error: EnvError) -> EnvError:
        """The same for the caller, for whom the envs have other numbers than here."""
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


def _not_the_callers(error: KeyboardInterrupt) -> EnvError:
    """Here nobody presses Ctrl-C: an env has raised it itself, or a policy."""
    raised = EnvError("an env or a policy raised KeyboardInterrupt")
    raised.__cause__ = error
    return raised.with_traceback(error.__traceback__)


def _written(
    row: int, env_id: int, info: Any, final_info: Any, objects: Any, final_objects: Any, error: Any, phase: str
) -> tuple[int, int, bytes]:
    """The note of an env of this process, in the form that worker processes write."""
    first, last = (None if part is None else outgoing.pickled(part) for part in (objects, final_objects))
    return row, env_id, write_note(env_id, info, final_info, first, last, error, phase)


def description_of(payload: bytes) -> EnvDescription:
    """What ``describe`` told."""
    described: EnvDescription = cloudpickle.loads(payload)
    return described
