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
from stepmill.errors import EnvError, StepmillError, summary
from stepmill.pool.description import EnvDescription
from stepmill.pool.faults import Fault, FaultPolicy
from stepmill.pool.process.handles import kill
from stepmill.pool.process.launcher import Launcher, Started, build_error
from stepmill.pool.process.patience import uninterrupted
from stepmill.pool.process.pickling import dumps, dumps_data
from stepmill.pool.process.remote_error import rebuild
from stepmill.pool.process.telling import tell
from stepmill.pool.process.wire import WireClosed
from stepmill.pool.python_pool import Preparation, PythonPool, engine_arguments, guarded
from stepmill.pool.rows import Note, RowFinisher
from stepmill.pool.settings import Settings, refuse_same_step
from stepmill.pool.source import NativeSource, PythonSource
from stepmill.spaces import FlatSpace, flatten

__all__ = ["ProcessPool"]

# A message to a worker fits into its socket, whatever it is doing, unless something is very wrong.
_ATTACH_S = 5.0
# What a worker has to finish its step and close its envs, when the pool is closed.
_CLOSE_S = 5.0


class ProcessPool(PythonPool):
    """Has the methods of ``_native.Pool``, over envs of any kind in processes of their own."""

    backend = "process"

    def __init__(
        self,
        source: PythonSource | NativeSource,
        settings: Settings,
        finisher: type[RowFinisher] = RowFinisher,
    ) -> None:
        self.is_native = isinstance(source, NativeSource)
        self._source = source
        count, envs = settings.num_workers, settings.num_envs
        # As first_env_of in cpp/core/process_layout.h has it.
        ranges = [(w * envs // count, (w + 1) * envs // count) for w in range(count)]
        self._launcher = Launcher(source, count, ranges, settings.start_timeout)
        self._workers: dict[int, Started] = {}
        self._build_failures: dict[int, StepmillError] = {}  # of the lives that are current
        try:
            started = self._launcher.start()
            observation, action = self._read_spaces(source, started)
            refuse_same_step(self.num_players, settings)
            arguments = self._engine_arguments(source, observation, action, settings)
            core = _native.Pool.make_process(
                **arguments,
                num_workers=count,
                step_timeout=settings.step_timeout or 0.0,
                reset_timeout=settings.reset_timeout or 0.0,
                obituaries=self._launcher.obituary_fd,
                # Weak: the engine would keep us alive, and we it.
                on_attention=functools.partial(_attend, weakref.ref(self)),
                on_rows=functools.partial(_finish, weakref.ref(self)),
            )
            super().__init__(core, observation, action, settings)
            self._finisher = finisher(observation, FaultPolicy(settings.on_error, settings.max_restarts))
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
            with contextlib.suppress(WireClosed, TimeoutError):  # it died, or is stuck: the engine will see
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
            worker = self._launcher.fork_worker(worker_id, incarnation)
            self._attach(worker)
        except Exception as error:  # no more processes, descriptors or memory are to be had
            if worker is not None:
                kill(worker.pidfd)
            reason = f"its worker process could not be started: {summary(error)}"
            self._core.restart_failed(worker_id, incarnation, reason)

    # ---- rows --------------------------------------------------------------------------------

    def finish(self, result: Any, notes: Sequence[tuple[int, int, bytes]], faults: Sequence[Any]) -> Any:
        """Puts what came beside the arrays into a batch, and settles failures."""
        read: list[Note] = []
        messages: dict[int, str] = {}
        for row, env_id, content in notes:
            note = pickle.loads(content)
            if isinstance(note, str):  # what a native env threw
                messages[env_id] = note
                continue
            parts, described, phase = note
            info, final_info, objects, final_objects = (part and _read_part(part, env_id) for part in parts)
            error = None if described is None else rebuild(described)
            read.append(Note(row, env_id, info, final_info, objects, final_objects, error, phase))
        known = []
        for one in map(Fault.read, faults):
            fault = replace(one, message=messages[one.env_id]) if one.env_id in messages else one
            known.append(fault.caused_by(self._build_failure(fault.env_id)) if fault.phase == "constructor" else fault)
        return self._finisher(result, read, known)

    def _build_failure(self, env_id: int) -> BaseException | None:
        """Why the process that should run an env could not build its envs, where it said so."""
        worker = next((one for one in self._workers.values() if one.envs[0] <= env_id < one.envs[1]), None)
        if worker is None:
            return None
        with contextlib.suppress(WireClosed, TimeoutError):
            while not worker.is_closed:
                (kind, *content), _ = worker.wire.recv(0.0)
                if kind == "failed":
                    self._build_failures[worker.worker_id] = build_error(self._source.id, *content)
        failure = self._build_failures.get(worker.worker_id)
        # Of the env itself its own exception, of its neighbours what happened to it.
        own = isinstance(failure, EnvError) and failure.env_id == env_id
        return failure.__cause__ if failure is not None and own else failure

    def _pack_objects(self, objects: list[Any]) -> bytes:
        return dumps_data((None, objects, None))

    def _pack_options(self, options: dict[str, Any] | None, prepare: Preparation | None) -> Any:
        if self.is_native or (options is None and prepare is None):
            return options
        return dumps((options, None, prepare))

    # ---- the envs themselves -----------------------------------------------------------------

    @guarded
    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._ask("call", env_ids, name, args, kwargs)

    @guarded
    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return self._ask("get", env_ids, name)

    @guarded
    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        questions = [dumps(("set", name, (value,), {})) for value in values]
        _raise_first(self._answers(env_ids, questions))

    @guarded
    def apply(self, function: Callable[[Any], Any], env_ids: Sequence[int]) -> list[Any]:
        """``function(env)`` of each, where the env runs."""
        return self._ask("apply", env_ids, "", (function,))

    @guarded
    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        frames = self._answers(env_ids, [dumps(("render", "", (), {}))] * len(env_ids))
        for env_id, frame in zip(env_ids, frames, strict=True):
            if isinstance(frame, _Failed):
                raise Fault(env_id, "render", 0, 0, 1, "").caused_by(frame.error).error() from frame.error
        return tuple(frames)

    def move_out(self) -> tuple[list[Any], list[Any], bytes]:
        """All envs as they stand: themselves, what each showed last, and the engine's memory of them.

        Raises where an env cannot be pickled; then nothing has changed. Else only ``abandon`` is left to do.
        """
        moved = [cloudpickle.loads(one) for one in self._move()]
        return [env for env, _ in moved], [last for _, last in moved], self._core.export_states()

    @guarded
    def _move(self) -> list[bytes]:
        return self._ask("move", range(self._settings.num_envs))

    def abandon(self) -> None:
        """Ends the workers without closing their envs, which are somewhere else by now."""
        self._let_go()

    def _ask(
        self,
        kind: str,
        env_ids: Sequence[int],
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        question = dumps((kind, name, args, kwargs or {}))
        return _raise_first(self._answers(env_ids, [question] * len(env_ids)))

    def _answers(self, env_ids: Sequence[int], questions: Sequence[bytes]) -> list[Any]:
        """The envs' answers, those that failed as ``_Failed``."""
        out: list[Any] = []
        for answer in self._core.ask(list(env_ids), list(questions)):
            if isinstance(answer, tuple):
                out.append(_Failed(Fault.read(answer).error()))
                continue
            good, value = pickle.loads(answer)
            out.append(value if good else _Failed(rebuild(value)))
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
            self._core.ask_to_stop()
            end = time.monotonic() + _CLOSE_S
            while not self._core.wait_stopped(0.05) and time.monotonic() < end:
                pass
            errors = self._close_errors()
        finally:
            self._core.leave(token)
            self._let_go()
        if errors:
            raise EnvError.gather(errors)

    def _let_go(self) -> None:
        try:
            self._core.close()  # kills what is left
        finally:
            self._launcher.close()

    def _close_errors(self) -> list[EnvError]:
        errors = []
        for worker in self._workers.values():
            with contextlib.suppress(WireClosed, TimeoutError):
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

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _raise_first(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if isinstance(answer, _Failed):
            raise answer.error
    return answers


def _read_part(part: bytes, env_id: int) -> Any:
    """A part of what came with a row. One that cannot be read here is left out, and the user is told."""
    try:
        return pickle.loads(part)
    except Exception as error:
        tell(f"an info of env {env_id} cannot be unpickled in this process and is left out: {summary(error)}")
        return None


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
        return result
    return alive.finish(result, notes, faults)


def _memory(pid: int) -> int:
    """The share of a process in the machine's memory (PSS), in bytes; 0 where it cannot be read."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/smaps_rollup") as lines:
        for line in lines:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
