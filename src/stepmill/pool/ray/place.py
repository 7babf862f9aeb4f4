"""A group of envs of a pool, where they live: in a process of another machine, with an engine of their own.

Ray makes an actor of ``Place``. The pool of the caller has its own engine, which has checked all that comes here.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, NamedTuple

import cloudpickle

from stepmill import _native
from stepmill.description import EnvDescription
from stepmill.errors import EnvError
from stepmill.pool.host import PythonHost, open_engine
from stepmill.pool.models.change import ModelChange
from stepmill.pool.open_host import open_host
from stepmill.pool.process import outgoing
from stepmill.pool.process.remote_error import describe
from stepmill.pool.process.written_notes import write_note
from stepmill.pool.ray.visit import Return, Trip, visit
from stepmill.pool.settings import Settings
from stepmill.pool.source import NativeSource, PythonSource

__all__ = ["Answer", "Described", "Order", "Place", "description_of", "settings_for"]

# A parcel, and by env, counted from the first one here: the objects of its action, and the options of its reset.
Order = tuple[bytes, dict[int, bytes], dict[int, bytes]]
# A parcel, what goes with its rows (row, env, bytes), and which envs failed.
Answer = tuple[bytes, list[tuple[int, int, bytes]], list[Any]]


class Described(NamedTuple):
    """What an actor tells of itself: the backend that it has chosen, and what its envs are like, pickled.

    Native envs are known to the caller. ``failure`` is what building them raised.
    """

    backend: str
    envs: bytes | None
    failure: bytes | None


def settings_for(settings: Settings, first: int, last: int, workers: int) -> Settings:
    """How a place runs its envs: results are taken as they are ready."""
    count = last - first
    return replace(
        settings,
        backend="auto",
        num_envs=count,
        batch_size=count,
        num_workers=min(workers, count),
        num_threads=min(workers, count),
        seed=settings.seed[first:last],
        as_ready=True,
    )


class Place:
    """The envs, and the engine that steps them."""

    _failure: bytes | None = None

    def __init__(
        self, pickled_source: bytes, settings: Settings, model_changes: dict[int, ModelChange], first: int
    ) -> None:
        """Does not raise: Ray would make a text of the exception. ``describe`` tells of it."""
        self._first = first
        try:
            self._build(pickled_source, settings, model_changes)
        except BaseException as error:
            self._failure = self._described(error)

    def _build(self, pickled_source: bytes, settings: Settings, model_changes: dict[int, ModelChange]) -> None:
        source: NativeSource | PythonSource = cloudpickle.loads(pickled_source)
        self._engine: _native.Engine = open_engine(open_host(source, settings), settings)
        self._host = self._engine.host
        self._is_inline = self._host.backend == "inline" and not self._host.is_native
        if model_changes:  # what was set while another actor had these envs
            self._host.ask_models("set_model", list(model_changes.values()), list(model_changes))

    def describe(self) -> Described:
        """What the caller has to know about the envs before it can use them."""
        if self._failure is not None:
            return Described("", None, self._failure)
        envs = None if self._host.is_native else outgoing.pickled(self._host.described)
        return Described(self._host.backend, envs, None)

    def exchange(self, order: Order, rows: int) -> Answer:
        """Starts envs, and returns so many rows: of those that are ready first, whichever was sent when."""
        parcel, objects, options = order
        if self._is_inline:
            objects, options = self._read_mail(objects, options)
        self._engine.send_parcel(parcel, objects, options)
        answer = self._engine.recv_parcel(rows, None)
        assert answer is not None, "something is in flight"
        parcel, notes, faults = answer
        return parcel, [_written(*note) for note in notes] if self._is_inline else notes, faults

    def rollout(self, pickled_policy: bytes, trip: Trip) -> Return:
        """See ``visit``."""
        return visit(self._engine, pickled_policy, trip, self._described)

    def _read_mail(self, objects: dict[int, bytes], options: dict[int, bytes]) -> tuple[dict[int, Any], dict[int, Any]]:
        """What a worker process would read."""
        host: PythonHost = self._host
        read_options = {}
        for env_id, mail in options.items():
            given, _, preparation = pickle.loads(mail)
            if preparation is not None:
                host.prepare(preparation, [env_id])
            read_options[env_id] = given
        return {env_id: pickle.loads(mail)[1] for env_id, mail in objects.items()}, read_options

    def ask(self, pickled_arguments: bytes, method: str) -> bytes:
        """Calls a method of the host: (whether it went well, its value or what it raised), pickled."""
        try:
            arguments = pickle.loads(pickled_arguments)
            return outgoing.pickled((True, self._engine.use(getattr(self._host, method), *arguments)))
        except BaseException as error:
            return pickle.dumps((False, self._described(error)))

    def stats(self) -> dict[str, Any]:
        """What its engine counts."""
        counted: dict[str, Any] = self._engine.stats()
        return counted

    def close(self) -> bytes | None:
        """Closes the envs. Returns what they raised, if anything."""
        try:
            self._engine.close()
        except BaseException as error:
            return self._described(error)
        return None

    def _described(self, error: BaseException) -> bytes:
        """An exception on its way to the caller, for whom the envs have other numbers than here."""
        if isinstance(error, EnvError) and error.env_id is not None:
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
            error = moved
        return describe(error)


def _written(
    row: int, env_id: int, info: Any, final_info: Any, objects: Any, final_objects: Any, error: Any, phase: str
) -> tuple[int, int, bytes]:
    """The note of an env of this thread, in the form that worker processes write."""
    first, last = (None if part is None else outgoing.pickled(part) for part in (objects, final_objects))
    return row, env_id, write_note(env_id, info, final_info, first, last, error, phase)


def description_of(payload: bytes) -> EnvDescription:
    """What ``describe`` told."""
    described: EnvDescription = cloudpickle.loads(payload)
    return described
