"""Envs in worker processes: starts them, keeps as many alive as there should be, and ends them.

Steps never pass through here: ``send`` and ``recv`` are the engine's, and the workers map its memory.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle

from stepmill import _native
from stepmill.errors import ActionError, EnvError, ResetOptionError, StepmillError, summary
from stepmill.pool.attributes import contained
from stepmill.pool.description import EnvDescription
from stepmill.pool.faults import Fault, FaultPolicy
from stepmill.pool.foreign import bearing
from stepmill.pool.infos import plain_info
from stepmill.pool.process.handles import kill
from stepmill.pool.process.launcher import Launcher, Started, build_error
from stepmill.pool.process.patience import uninterrupted
from stepmill.pool.process.pickling import dumps_given
from stepmill.pool.process.remote_error import rebuild
from stepmill.pool.process.remote_error import summary as summary_of
from stepmill.pool.process.telling import tell
from stepmill.pool.process.wire import WireClosed, WireTimeout
from stepmill.pool.python_pool import Preparation, PythonPool, engine_arguments, guarded
from stepmill.pool.rows import Note, RowFinisher
from stepmill.pool.settings import Settings, refuse_same_step
from stepmill.pool.source import NativeSource, PythonSource
from stepmill.refusals import explained_refusals
from stepmill.spaces import FlatSpace, flatten

__all__ = ["ProcessPool"]

# A message to a worker fits into its socket, whatever it is doing, unless something is very wrong.
_ATTACH_S = 5.0
# What a worker has to finish its step and close its envs, when the pool is closed.
_CLOSE_S = 5.0


class ProcessPool(PythonPool):
    """Has the methods of ``_native.Pool``, over envs of any kind in processes of their own.

    ``launcher``: of the same source and settings, where one has begun to load already. It is the pool's then.
    """

    backend = "process"

    def __init__(
        self,
        source: PythonSource | NativeSource,
        settings: Settings,
        finisher: type[RowFinisher] = RowFinisher,
        launcher: Launcher | None = None,
    ) -> None:
        self.is_native = isinstance(source, NativeSource)
        self._source = source
        with explained_refusals("the worker processes of the pool could not be started"):
            self._launcher = Launcher(source, settings) if launcher is None else launcher
            self._start(source, settings, finisher)

    def _start(self, source: PythonSource | NativeSource, settings: Settings, finisher: type[RowFinisher]) -> None:
        self._workers: dict[int, Started] = {}
        self._build_failures: dict[int, StepmillError] = {}  # of the lives that are current
        try:
            started = self._launcher.start()
            observation, action = self._read_spaces(source, started)
            refuse_same_step(self.num_players, settings)
            arguments = self._engine_arguments(source, observation, action, settings)
            core = _native.Pool.make_process(
                **arguments,
                num_workers=settings.num_workers,
                step_timeout=settings.step_timeout or 0.0,
                reset_timeout=settings.reset_timeout or 0.0,
                obituaries=self._launcher.obituary_fd,
                # Weak: the engine would keep us alive, and we it.
                on_attention=functools.partial(_attend, weakref.ref(self)),
                on_rows=functools.partial(_finish, weakref.ref(self)),
            )
            PythonPool.__init__(self, core, observation, action, settings)
            policy = FaultPolicy(settings.on_error, settings.max_restarts)
            self._finisher = finisher(observation, policy, settings.autoreset)
            self._attachment = {
                **{key: arguments[key] for key in ("env_class", "observation_tree", "action_tree")},
                "spec": _without_bounds(arguments["spec"]),
                **core.plan(),
                "has_objects": bool(observation.object_spaces),
            }
            for worker in started:
                self._attach(worker)
        except BaseException:
            self._launcher.close()
            raise

    # ---- starting ----------------------------------------------------------------------------

    def _read_spaces(
        self, source: PythonSource | NativeSource, started: Sequence[Started]
    ) -> tuple[FlatSpace, FlatSpace]:
        if isinstance(source, NativeSource):
            self.metadata, self.render_mode, self.num_players = {}, None, source.max_num_players
            return (
                FlatSpace(source.observation_space, source.observation_tree, [], []),
                FlatSpace(source.action_space, source.action_tree, [], []),
            )
        first = started[0].ready_payload
        described: EnvDescription = cloudpickle.loads(first or b"")
        for worker in started[1:]:
            if worker.ready_payload == first:
                continue
            cloudpickle.loads(worker.ready_payload or b"").check_like(worker.envs[0], described, 0)
        self.metadata, self.render_mode = described.metadata, described.render_mode
        self.num_players = described.num_players
        return flatten(described.observation_space), flatten(described.action_space)

    def _engine_arguments(
        self, source: PythonSource | NativeSource, observation: FlatSpace, action: FlatSpace, settings: Settings
    ) -> dict[str, Any]:
        arguments = engine_arguments(observation, action, self.num_players, settings)
        if isinstance(source, NativeSource):
            arguments["env_class"] = source.env_class
            arguments["configs"] = source.configs
            arguments["spec"] = None
            arguments["max_episode_steps"] = source.max_episode_steps or 0
        return arguments

    def _attach(self, worker: Started) -> None:
        """Has the engine watch over a worker, and gives the worker what it needs to serve."""
        outbox = _native.create_outbox()
        try:
            self._core.admit(
                worker.worker_id,
                worker.incarnation,
                worker.pid,
                worker.pidfd,
                worker.dump_fd,
                outbox,
                self._settings.start_timeout,
            )
            old = self._workers.get(worker.worker_id)
            self._workers[worker.worker_id] = worker
            self._build_failures.pop(worker.worker_id, None)
            if old is not None:
                old.close()
            attachment = {
                **self._attachment,
                "incarnation": worker.incarnation,
                "env_count": worker.envs[1] - worker.envs[0],
            }
            with contextlib.suppress(WireClosed, WireTimeout):  # it died, or is stuck: the engine will see
                worker.wire.send(("attach", attachment), [self._core.arena, outbox], _ATTACH_S)
        finally:
            os.close(outbox)

    def restart(self) -> None:
        """Starts a process for each worker that has none and is needed. Does not wait until it has built its envs."""
        for worker_id, incarnation in self._core.to_restart():
            # In one piece: a process that was forked and is not known to the engine would serve beside the next one.
            uninterrupted(functools.partial(self._start_again, worker_id, incarnation))

    def _start_again(self, worker_id: int, incarnation: int, _: int | None) -> None:
        worker: Started | None = None
        try:
            with explained_refusals("the system refuses it"):
                worker = self._launcher.fork_worker(worker_id, incarnation)
                self._attach(worker)
        except Exception as error:  # no more processes, descriptors or memory are to be had
            if worker is not None:
                kill(worker.pidfd)
            reason = f"its worker process could not be started: {summary(error)}"
            self._core.restart_failed(worker_id, incarnation, reason)

    # ---- rows --------------------------------------------------------------------------------

    def finish(
        self, result: Any, notes: Sequence[tuple[int, int, bytes]], faults: Sequence[Any]
    ) -> tuple[Any, EnvError | None]:
        """Puts what came beside the arrays into a batch, and settles failures. See ``RowFinisher``."""
        read: list[Note] = []
        messages: dict[int, str] = {}
        for note, (_, env_id, _) in zip(_read_notes(notes), notes, strict=True):
            if isinstance(note, str):  # what a native env threw
                messages[env_id] = note
            elif note is not None:
                read.append(note)
        known = []
        for one in map(Fault.read, faults):
            fault = replace(one, message=messages[one.env_id]) if one.env_id in messages else one
            if fault.phase == "constructor":
                # In one piece: what is read from a wire cannot be read again.
                fault = fault.caused_by(uninterrupted(functools.partial(self._build_failure, fault.env_id)))
            known.append(fault)
        return self._finisher(result, read, known)

    def _build_failure(self, env_id: int, _: int | None) -> BaseException | None:
        """Why the process that should run an env could not build its envs, where it said so."""
        worker = next((one for one in self._workers.values() if one.envs[0] <= env_id < one.envs[1]), None)
        if worker is None:
            return None
        with contextlib.suppress(WireClosed, WireTimeout):
            while not worker.is_closed:
                (kind, *content), _fds = worker.wire.recv(0.0)
                if kind == "failed":
                    self._build_failures[worker.worker_id] = build_error(self._source.id, *content)
        failure = self._build_failures.get(worker.worker_id)
        # Of the env itself its own exception, of its neighbours what happened to it.
        own = isinstance(failure, EnvError) and failure.env_id == env_id
        return failure.__cause__ if failure is not None and own else failure

    def pack_objects(self, objects: list[Any]) -> bytes:
        return dumps_given("action", (None, objects, None), ActionError)

    def _pack_options(self, options: dict[str, Any] | None, prepare: Preparation | None) -> Any:
        if self.is_native or (options is None and prepare is None):
            return options
        return dumps_given("reset options", (options, None, prepare), ResetOptionError)

    # ---- the envs themselves -----------------------------------------------------------------

    @guarded
    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._ask("call", "call", env_ids, name, args, kwargs)

    @guarded
    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return self._ask("get_attr", "get", env_ids, name)

    @guarded
    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        what = f"set_attr({name!r})"
        questions = [dumps_given(what, ("set", name, (value,), {})) for value in values]
        _raise_first(self._answers("set_attr", env_ids, questions))

    @guarded
    def apply(self, function: Callable[[Any], Any], env_ids: Sequence[int]) -> list[Any]:
        """``function(env)`` of each, where the env runs."""
        return self._ask("call", "apply", env_ids, "", (function,))

    @guarded
    def random_states(self, env_ids: Sequence[int]) -> list[Any]:
        """Where the generators of native envs stand, see ``pool.generators``."""
        return self._ask("get_attr", "random", env_ids)

    @guarded
    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        frames = self._answers("render", env_ids, [pickle.dumps(("render", "", (), {}))] * len(env_ids))
        for frame in frames:
            if isinstance(frame, _Failed):
                raise frame.as_env_error()
        return tuple(frames)

    def _ask(
        self,
        phase: str,
        kind: str,
        env_ids: Sequence[int],
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        question = dumps_given(f"{kind}({name!r})" if name else kind, (kind, name, args, kwargs or {}))
        return _raise_first(self._answers(phase, env_ids, [question] * len(env_ids)))

    def _answers(self, phase: str, env_ids: Sequence[int], questions: Sequence[bytes]) -> list[Any]:
        """The envs' answers, those that failed as ``_Failed``."""
        out: list[Any] = []
        for env_id, answer in zip(env_ids, self._core.ask(list(env_ids), list(questions)), strict=True):
            if isinstance(answer, tuple):
                out.append(_Failed(env_id, phase, replace(Fault.read(answer), phase=phase).error()))
                continue
            with contained(env_id, phase):
                good, value = pickle.loads(answer)
            out.append(value if good else _Failed(env_id, phase, rebuild(value)))
        return out

    # ---- measurements ------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        out = self._core.stats()
        for worker in out["workers"]:
            worker["memory_bytes"] = 0 if worker["pid"] is None else _memory(worker["pid"])
        return out

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the workers: each finishes its step and closes its envs; what takes too long is killed."""
        if self._core.closed and self._launcher.is_closed:
            return
        if self._core.closed or self._core.forked:  # an earlier close was interrupted; or all is the parent's
            self._let_go()
            return
        token = object()
        errors: list[EnvError] = []
        try:
            self._core.enter(token)
            self._core.ask_to_stop()  # from here on the pool is closed, even if we do not get far
            end = time.monotonic() + _CLOSE_S
            while not self._core.wait_stopped(0.05) and time.monotonic() < end:
                pass
            errors = self._close_errors()
        finally:
            if self._core.leave(token):  # else another call is inside, and this one is refused: nothing may change
                self._let_go()
        if errors:
            raise EnvError.gather(errors)

    def _let_go(self) -> None:
        self._core.close()  # kills what is left; where that is interrupted or refused, the next close() goes on
        self._launcher.close()

    def _close_errors(self) -> list[EnvError]:
        errors = []
        for worker in self._workers.values():
            with contextlib.suppress(WireClosed, WireTimeout):
                while True:
                    (kind, *content), _ = worker.wire.recv(0.0)
                    for env_id, described in content[0] if kind == "closed" else ():
                        errors.append(Fault(env_id, "close", 0, 0, 1, "").caused_by(rebuild(described)).error())
        return errors

    def __del__(self) -> None:
        """Ends with its last user: the view, or one of its methods that somebody kept."""
        try:  # noqa: SIM105  (when the interpreter ends, contextlib may be gone)
            self.close()
        except Exception:  # nobody is there to hear of it; or it was never built
            pass


class _Failed:
    """In place of an answer: why there is none."""

    def __init__(self, env_id: int, phase: str, error: BaseException) -> None:
        self.error = error
        self._env_id = env_id
        self._phase = phase

    def as_env_error(self) -> EnvError:
        if isinstance(self.error, EnvError) and self.error.env_id == self._env_id:  # its worker died, or took too long
            return self.error
        return Fault(self._env_id, self._phase, 0, 0, 1, "").caused_by(self.error).error()


def _raise_first(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if not isinstance(answer, _Failed):
            continue
        if isinstance(answer.error, Exception):
            raise answer.error
        # sys.exit() in an env must not end this program; nor is a KeyboardInterrupt from there the user's.
        raise answer.as_env_error()
    return answers


def _read_notes(notes: Sequence[tuple[int, int, bytes]]) -> list[Note | str | None]:
    """What came with rows; of a native env a text. What cannot be read is left out, and the user is told."""
    return bearing(
        lambda: [_read_note(*note, _load) for note in notes],
        lambda _: [_or_left_out(note[1], functools.partial(_read_note, *note, _load_or_tell)) for note in notes],
    )


def _read_note(row: int, env_id: int, content: bytes, load: Callable[[int, bytes], Any]) -> Note | str | None:
    note = load(env_id, content)
    if note is None or isinstance(note, str):
        return note
    (info, final_info, objects, final_objects), described, phase = note
    return Note(
        row,
        env_id,
        None if info is None else plain_info(load(env_id, info), env_id),
        None if final_info is None else plain_info(load(env_id, final_info), env_id),
        None if objects is None else load(env_id, objects),
        None if final_objects is None else load(env_id, final_objects),
        None if described is None else rebuild(described),
        phase,
        None if described is None else summary_of(described),
    )


def _load(_: int, pickled: bytes) -> Any:
    return pickle.loads(pickled)


def _load_or_tell(env_id: int, pickled: bytes) -> Any:
    return _or_left_out(env_id, functools.partial(pickle.loads, pickled))


def _or_left_out(env_id: int, read: Callable[[], Any]) -> Any:
    def leave_out(failure: BaseException) -> None:
        tell(f"an info of env {env_id} cannot be unpickled in this process and is left out: {summary(failure)}")

    return bearing(read, leave_out)


def _without_bounds(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a worker has to know of the leaves. Bounds are for its messages only, and those of many elements long."""
    if spec is None:
        return None
    short = {role: [_with_short_bounds(leaf) for leaf in spec[role]] for role in ("observation", "action")}
    return {**spec, **short}


def _with_short_bounds(leaf: dict[str, Any]) -> dict[str, Any]:
    return leaf if len(leaf["low"]) <= 64 else {**leaf, "low": [min(leaf["low"])], "high": [max(leaf["high"])]}


def _attend(pool: weakref.ref[ProcessPool]) -> None:
    if (alive := pool()) is not None:
        alive.restart()


def _finish(pool: weakref.ref[ProcessPool], result: Any, notes: Sequence[Any], faults: Sequence[Any]) -> Any:
    alive = pool()
    if alive is None:  # somebody kept a method of the engine beyond its pool
        return result, None
    return alive.finish(result, notes, faults)


def _memory(pid: int) -> int:
    """The share of a process in the machine's memory (PSS), in bytes; 0 where it cannot be read."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
        for line in lines:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
