"""Envs in worker processes: starts the workers, replaces those that die, and ends them.

Steps never pass through here: the engine does ``send`` and ``recv``, and the workers map its memory.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stepmill import _native
from stepmill.errors import EnvError, RemoteEnvError, StepmillError, UnsupportedError, WorkerDiedError, summary
from stepmill.hosts.elsewhere import EnvsElsewhere
from stepmill.hosts.faults import Fault, FaultPolicy, contained
from stepmill.hosts.frames import Frame
from stepmill.hosts.host import NativeStates
from stepmill.hosts.process.caller.child_process import is_over, kill
from stepmill.hosts.process.caller.clones import Clones, WakeCall, is_ticket
from stepmill.hosts.process.caller.construction import build_error
from stepmill.hosts.process.caller.handles import WorkerHandle
from stepmill.hosts.process.caller.launcher import Launcher
from stepmill.hosts.process.pickling import dumps, dumps_argument
from stepmill.hosts.process.remote_error import rebuild
from stepmill.hosts.process.wire import WireClosed, WireTimeout, close_all
from stepmill.hosts.python_states import WAYS, common_kind
from stepmill.hosts.rows import RowFinisher
from stepmill.settings import Settings, check_players
from stepmill.sources.drawing import Renderer
from stepmill.sources.files.env_library import EnvLibrary
from stepmill.sources.files.sanitizers import SanitizerReport
from stepmill.sources.models.env_model import ModelQuestion
from stepmill.sources.models.fields import ModelChange
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.system.refusals import explained_refusals
from stepmill.system.uninterrupted import uninterrupted
from stepmill.system.warn_once import warn

# A message to a worker fits into its socket even while the worker is busy, unless something is very wrong.
_ATTACH_S = 5.0
# How long a worker may take to finish its step and close its envs when the pool is closed.
_CLOSE_S = 5.0
# How long a worker has to finish a call that was given up.
_STUCK_S = 5.0
# How long a coroutine may take to end when it is cancelled at its deadline.
_GRACE_S = 1.0


class ProcessHost(NativeStates, EnvsElsewhere, _native.ProcessHost):
    """A ``Host`` for envs of any kind, in their own processes.

    ``launcher`` is one for the same source and settings that has already started loading. The host takes ownership.
    ``found`` is what islands have found out about their envs.
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
        self._renderer = Renderer(source) if isinstance(source, NativeSource) else None
        self._source_id = source.id
        self._worker_environ: Mapping[str, str] = {}
        self._own_files: Collection[str] = ()  # of an env that is compiled with sanitizers
        self._reports: dict[int, SanitizerReport | None] = {}  # of the last worker that died, by its pid
        if isinstance(source, NativeSource):
            self._simulators, self.code = source.simulators, source.code
            self._worker_environ = source.worker_environ
            if isinstance(source.library, EnvLibrary):
                self._own_files = source.library.sources
        else:
            self.episode_limits = [env.max_episode_steps for env in source.envs]
        self._start_timeout = settings.start_timeout
        self._workers: dict[int, WorkerHandle] = {}
        self._model_changes = {}
        self._build_failures: dict[int, StepmillError] = {}  # of the current life of each worker
        self._kinds: dict[int, str] = {}  # how envs are saved that were asked, by env id
        self._successors: list[_Successor] = []
        with explained_refusals("the worker processes of the pool could not be started"):
            self._launcher = Launcher(source, settings) if launcher is None else launcher
            try:
                started = self._launcher.start()
                self.clones = Clones(self._launcher)
                shares = self._launcher.shares
                self._worker_of = [worker_id for worker_id, share in enumerate(shares) for _ in range(share.num_envs)]
                self.found = self._launcher.found
                self._destination = self._launcher.destination
                self._read_spaces(source, [(worker.envs[0], worker.ready_payload) for worker in started])
                check_players(self.num_players, settings)
                self.policy = FaultPolicy(settings.on_error, settings.max_restarts)
                self._finisher = finisher(self.observation, self.policy, settings.autoreset)
                self._build(source, settings)
                for worker in started:
                    self._attach(worker)
            except BaseException:
                self._launcher.close()
                raise

    # ---- starting ----------------------------------------------------------------------------

    def _build(self, source: PythonSource | NativeSource, settings: Settings) -> None:
        """Builds the native half, and what every worker is told about it."""
        pool, envs = self._native_arguments(source, settings)
        limits = {"step_timeout": settings.step_timeout or 0.0, "reset_timeout": settings.reset_timeout or 0.0}
        has_loop = isinstance(source, PythonSource) and self.described.is_async
        is_cancelled = has_loop and not settings.process.threads  # at a deadline
        super().__init__(
            **pool,
            **envs,
            first_envs=[share.first for share in self._launcher.shares],
            most_running=min(settings.process.max_running or settings.num_envs, settings.num_envs) * has_loop,
            **limits,
            grace=_GRACE_S * is_cancelled,
            obituaries=self._launcher.obituary_fd,
        )
        self._is_built = True
        self._attachment = {
            **{key: envs[key] for key in ("env_class", "sizes", "observation_tree", "action_tree")},
            "spec": _without_bounds(envs["spec"]),
            "plan": self.plan(),
            "has_objects": bool(self.observation.object_spaces),
            # None, or the deadlines that the worker's own event loop sees to.
            "loop": {name: limit for name, limit in limits.items() if limit and is_cancelled} if has_loop else None,
        }

    def _attach(self, worker: WorkerHandle) -> None:
        """Tells the engine to watch a worker, and sends the worker what it needs to serve."""
        fds = [_native.create_outbox()]
        try:
            outbox = fds[0]
            self.admit(
                worker.worker_id,
                worker.incarnation,
                worker.pid,
                worker.pidfd,
                worker.dump_fd,
                outbox,
                self._start_timeout,
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
            if self._attachment["loop"] is not None:
                fds.append(os.dup(self.bell(worker.worker_id)))
            if changes := self._model_changes_of(range(*worker.envs)):
                fds.append(_file_of(dumps(changes, to=self._destination)))
            with contextlib.suppress(WireClosed, WireTimeout):  # it died or is stuck: the engine will notice
                outbox, *changed = fds
                worker.wire.send(("attach", attachment), [self.arena, outbox, self.rows_event, *changed], _ATTACH_S)
        finally:
            close_all(fds)

    def show_news(self, text: str) -> None:
        """Shows which envs take very long, with the stacks of their workers."""
        warn(f"{self._source_id}: {text}")

    def restart(self) -> None:
        """Starts a process for each needed worker that has none. Does not wait until it has built its envs."""
        for worker_id, incarnation in self.to_restart():
            # Uninterrupted: a forked process that the engine does not know would serve alongside the next one.
            uninterrupted(functools.partial(self._start_again, worker_id, incarnation))

    def _start_again(self, worker_id: int, incarnation: int, _: int | None) -> None:
        worker: WorkerHandle | None = None
        try:
            with explained_refusals("the system refuses it"):
                worker = self._launcher.fork_worker(worker_id, incarnation)
                self._attach(worker)
        except Exception as error:  # no more processes, descriptors or memory are available
            if worker is not None:
                kill(worker.pidfd)
                if self._workers.get(worker_id) is worker:  # the engine knows it already, and will see that it ended
                    return
            reason = f"its worker process could not be started: {summary(error)}"
            self.restart_failed(worker_id, incarnation, reason)

    # ---- rows --------------------------------------------------------------------------------

    def _explained(self, fault: Fault) -> Fault:
        if fault.kind is WorkerDiedError and self._worker_environ:
            fault = self._with_report(fault)
        if fault.phase != "constructor" or fault.cause is not None:
            return fault
        # Uninterrupted: what is read from a wire cannot be read again.
        return fault.caused_by(uninterrupted(functools.partial(self._build_failure, fault.env_id)))

    def _with_report(self, fault: Fault) -> Fault:
        """The same fault, with what a sanitizer found in the worker that died."""
        named = re.search(r"\(pid (\d+)\)", fault.message)
        pid = int(named[1]) if named else -1
        if pid not in self._reports:
            self._reports = {pid: SanitizerReport.take(self._worker_environ, pid)}
        report = self._reports[pid]
        if report is None:
            return fault
        cause = RemoteEnvError("the report of the sanitizer", f"\n{report.text}")
        return fault.caused_by(cause, message=f"{report.summary(self._own_files)}; {fault.message}")

    def _build_failure(self, env_id: int, _: int | None) -> BaseException | None:
        """Why the worker process of an env could not build its envs, if it said so."""
        worker = next((one for one in self._workers.values() if one.envs[0] <= env_id < one.envs[1]), None)
        if worker is None:
            return None
        with contextlib.suppress(WireClosed, WireTimeout):
            while not worker.is_closed:
                (kind, *content), _fds = worker.wire.recv(0.0)
                if kind == "failed":
                    self._build_failures[worker.worker_id] = build_error(self._source_id, *content)
        failure = self._build_failures.get(worker.worker_id)
        # The env that failed gets its own exception, its neighbours get the error about that env.
        own = isinstance(failure, EnvError) and failure.env_id == env_id
        return failure.__cause__ if failure is not None and own else failure

    # ---- saved states ------------------------------------------------------------------------

    @property
    def state_ways(self) -> tuple[str, ...]:
        if self.is_native:
            return self._native_ways()
        return (
            (*WAYS, "fork") if self._attachment["loop"] is None else WAYS
        )  # a fork would share the loop's descriptors

    @property
    def state_kind(self) -> str:
        if self.is_native:
            return self._native_kind(self._source_id, self.can_save)
        idle = [env_id for env_id in range(self._launcher.shares[-1].last) if self.at_rest(env_id)]
        return common_kind(self._ask("call", "state", idle or [0], "kind"))  # no one waits for envs in flight

    def save_envs(self, env_ids: Sequence[int], by: str | None) -> list[bytes]:
        forked = self._saved_by_fork(env_ids, by)
        others = env_ids if not forked else sorted(set(env_ids).difference(forked))
        saved: dict[int, bytes] = dict(zip(others, self._ask("call", "state", others, "save", (by,)), strict=True))
        if forked:
            workers = [self._workers[self._worker_of[env_id]] for env_id in forked]
            changes = [self._model_changes.get(env_id) for env_id in forked]
            tickets = self.clones.save(
                workers, changes, lambda call: self._ask("call", "state", forked, "fork", (call,))
            )
            saved.update(zip(forked, tickets, strict=True))
        return [saved[env_id] for env_id in env_ids]

    def _saved_by_fork(self, env_ids: Sequence[int], by: str | None) -> list[int]:
        """The envs that are: all if the user asks for it, else those without a state of their own and a neighbour."""
        if self.is_native or by not in (None, "fork"):
            return []
        shares = self._launcher.shares
        alone = [env_id for env_id in env_ids if shares[self._worker_of[env_id]].num_envs == 1]
        if by == "fork":
            if len(alone) < len(env_ids):
                raise UnsupportedError(
                    f"save: by='fork' copies the process of an env: expected one env per worker, got "
                    f"{len(self._worker_of)} envs and {len(shares)} workers: use num_workers=num_envs"
                )
            return alone
        if unknown := [env_id for env_id in alone if env_id not in self._kinds]:
            self._kinds.update(zip(unknown, self._ask("call", "state", unknown, "kind"), strict=True))
        return [env_id for env_id in alone if self._kinds[env_id] == "fork"]

    def load_envs(self, env_ids: Sequence[int], states: Sequence[bytes], former: list[Any]) -> None:
        """Asks all of them at once. Until its next action, a worker keeps what an env was before.

        For states by fork, other workers are made. They take their places when this has returned.
        """
        self._remember_states(env_ids, states, former)
        given = dict(zip(env_ids, states, strict=True))
        tickets = {} if self.is_native else {env_id: one for env_id, one in given.items() if is_ticket(one)}
        others = [env_id for env_id in env_ids if env_id not in tickets]
        questions = [pickle.dumps(("state", "load", (given[env_id],), {})) for env_id in others]
        _raise_first(self._answers("call", others, questions))
        if tickets:  # last: while we ask, other workers might be started
            self.start_successors()  # those of a call that was interrupted
            uninterrupted(functools.partial(self._make_successors, tickets))

    def _make_successors(self, tickets: dict[int, bytes], cancel_fd: int | None) -> None:
        with contextlib.ExitStack() as outboxes:
            calls = []
            for env_id, ticket in tickets.items():
                worker_id = self._worker_of[env_id]
                clone = self.clones.find_for(env_id, ticket, self._launcher.shares[worker_id].python)
                outbox = _native.create_outbox()
                outboxes.callback(os.close, outbox)
                attachment = {**self._attachment, "incarnation": self.next_incarnation(worker_id), "env_count": 1}
                calls.append(WakeCall(clone, worker_id, env_id, attachment, (self.arena, outbox, self.rows_event)))
            for call, worker in zip(calls, self.clones.wake(calls, cancel_fd), strict=True):
                former = self._workers[worker.worker_id], self._model_changes.get(call.env_id)
                self._successors.append(_Successor(call.env_id, worker, *former))
                self._put_worker(call.env_id, worker, call.clone.about)
            for call, one in zip(calls, self._successors, strict=True):
                worker = one.worker
                self.name_successor(
                    worker.worker_id, worker.incarnation, worker.pid, worker.pidfd, worker.dump_fd, call.fds[1]
                )

    def _put_worker(self, env_id: int, worker: WorkerHandle, changes: ModelChange | None) -> None:
        self._workers[worker.worker_id] = worker
        self._model_changes.pop(env_id, None)
        if changes is not None:
            self._model_changes[env_id] = changes

    def start_successors(self) -> None:
        """Lets those serve that have taken the places of other workers."""
        if self._successors:
            uninterrupted(lambda _: self._start_successors())

    def _start_successors(self) -> None:
        for one in self._successors:
            with contextlib.suppress(WireClosed, WireTimeout):  # it died: the engine will notice
                one.worker.wire.send(("serve",), timeout=_ATTACH_S)
            one.former.close()
        self._successors.clear()

    def _drop_successors(self) -> None:
        self.drop_successors()
        for one in self._successors:
            self._put_worker(one.env_id, one.former, one.former_changes)
            kill(one.worker.pidfd)
            one.worker.close()
        self._successors.clear()

    def put_back(self, env_ids: Sequence[int], former: Sequence[Any]) -> None:
        self._drop_successors()
        self._remember_changes(env_ids, former)
        self._end_stuck(env_ids)
        questions = [pickle.dumps(("state", "put_back", (), {}))] * len(env_ids)
        answers = self._answers("call", env_ids, questions)
        # The error that led here says which worker died; its envs are built again.
        _raise_first([one for one in answers if not (isinstance(one, _FailedCall) and one.is_loss)])

    def _end_stuck(self, env_ids: Sequence[int]) -> None:
        """Kills the workers that are still in a call that was given up: nobody can interrupt the wait for them."""
        end = time.monotonic() + _STUCK_S
        for env_id in env_ids:
            worker = self._workers[self._worker_of[env_id]]
            while not self.at_rest(env_id):
                if time.monotonic() >= end:
                    kill(worker.pidfd)
                    break
                is_over(worker.pidfd, 0.01)

    # ---- the envs themselves -----------------------------------------------------------------

    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._ask("call", "call", env_ids, name, args, kwargs)

    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return self._ask("get_attr", "get", env_ids, name)

    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        what = f"set_attr({name!r})"
        questions = [self._dumps(what, ("set", name, (value,), {})) for value in values]
        _raise_first(self._answers("set_attr", env_ids, questions))

    def apply(self, function: Callable[[Any], Any], env_ids: Sequence[int]) -> list[Any]:
        """``function(env)`` for each env, called where the env lives."""
        return self._ask("call", "apply", env_ids, "", (function,))

    def random_states(self, env_ids: Sequence[int]) -> list[Any]:
        """The states of the native envs' generators, see ``hosts.generators``."""
        return self._ask("get_attr", "random", env_ids)

    def _model_questions(
        self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]
    ) -> Callable[[], list[Any]]:
        questions = [self._dumps(question, ("model", question, (one,), {})) for one in arguments]
        return lambda: _raise_first(self._answers("call", env_ids, questions))

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        """Pictures, drawn in the workers: native envs too, by a ``Renderer`` there."""
        if self._renderer is not None:
            self._renderer.check_usable()
        frames = self._answers("render", env_ids, [pickle.dumps(("render", "", (), {}))] * len(env_ids))
        for frame in frames:
            if isinstance(frame, _FailedCall):
                is_ours = self.is_native and isinstance(frame.error, StepmillError)
                raise frame.error if is_ours else frame.as_env_error()
        return tuple(frames)

    @property
    def crews(self) -> list[range]:
        return [range(share.first, share.last) for share in self._launcher.shares]

    def ask_frames(self, env_ids: Sequence[int], most: int) -> list[int]:
        """Asks the workers, which draw as soon as they can."""
        question = pickle.dumps(("frame", "", (most,), {}))
        return [env_id for env_id in env_ids if self.post(env_id, question)]

    def take_frames(self) -> list[Frame]:
        return [_frame(env_id, answer) for env_id, answer in self.take_posted()]

    def _ask(
        self,
        phase: str,
        kind: str,
        env_ids: Sequence[int],
        name: str = "",
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        question = self._dumps(f"{kind}({name!r})" if name else kind, (kind, name, args, kwargs or {}))
        return _raise_first(self._answers(phase, env_ids, [question] * len(env_ids)))

    def _dumps(self, what: str, question: tuple[Any, ...]) -> bytes:
        return dumps_argument(what, question, to=self._destination)

    def _answers(self, phase: str, env_ids: Sequence[int], questions: Sequence[bytes]) -> list[Any]:
        """The answers of the envs; a ``_FailedCall`` for each one that failed."""
        out: list[Any] = []
        for env_id, answer in zip(env_ids, self.ask(list(env_ids), list(questions)), strict=True):
            if isinstance(answer, tuple):
                out.append(_FailedCall(env_id, phase, replace(Fault.read(answer), phase=phase).error()))
                continue
            with contained(env_id, phase):
                good, value = pickle.loads(answer)
            out.append(value if good else _FailedCall(env_id, phase, rebuild(value)))
        return out

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the workers: each finishes its step and closes its envs. Workers that take too long are killed."""
        errors: list[EnvError] = []
        try:
            if not (self.has_ended or self.forked):
                self.start_successors()
                self.ask_to_stop()
                end = time.monotonic() + _CLOSE_S
                while not self.wait_stopped(0.05) and time.monotonic() < end:
                    pass
                errors = self._close_errors()
        finally:
            super().close()  # kills the workers that are left
            self.clones.close()
            self._launcher.close()
            for worker in self._workers.values():
                SanitizerReport.take(self._worker_environ, worker.pid)  # of a destructor: it is shown
        if errors:
            raise EnvError.gather(errors)

    def _close_errors(self) -> list[EnvError]:
        errors = []
        for worker in self._workers.values():
            with contextlib.suppress(WireClosed, WireTimeout):
                while True:
                    (kind, *content), _ = worker.wire.recv(0.0)
                    for env_id, described in content[0] if kind == "closed" else ():
                        errors.append(Fault.in_call(env_id, "close", rebuild(described)))
        return errors


class _Successor(NamedTuple):
    """A worker that was made of a clone, and what was there before."""

    env_id: int
    worker: WorkerHandle
    former: WorkerHandle
    former_changes: ModelChange | None


class _FailedCall:
    """Takes the place of an answer: why there is none."""

    def __init__(self, env_id: int, phase: str, error: BaseException) -> None:
        self.error = error
        self._env_id = env_id
        self._phase = phase

    def as_env_error(self) -> EnvError:
        if isinstance(self.error, EnvError) and self.is_loss:
            return self.error
        return Fault.in_call(self._env_id, self._phase, self.error)

    @property
    def is_loss(self) -> bool:
        """Whether its worker died, or took too long."""
        return isinstance(self.error, EnvError) and self.error.env_id == self._env_id


def _frame(env_id: int, answer: Any) -> Frame:
    """What a worker answered. It may be anything: the code of its envs can write where it writes."""
    if isinstance(answer, tuple):
        return Frame(env_id, 0.0, None, Fault.read(answer).message or "its worker ended")
    try:
        good, value = pickle.loads(answer)
        return Frame(env_id, *value[1:]) if good else Frame(env_id, 0.0, None, summary(rebuild(value)))
    except Exception as error:
        return Frame(env_id, 0.0, None, summary(error))


def _file_of(content: bytes) -> int:
    """A descriptor of a file: content of any size fits into a message in this way."""
    fd = os.memfd_create("stepmill-models", os.MFD_CLOEXEC)
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(content)
    return fd


def _raise_first(answers: list[Any]) -> list[Any]:
    for answer in answers:
        if not isinstance(answer, _FailedCall):
            continue
        if isinstance(answer.error, Exception):
            raise answer.error
        # sys.exit() in an env must not end this program, and a KeyboardInterrupt from there is not the user's Ctrl-C.
        raise answer.as_env_error()
    return answers


def _without_bounds(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a worker needs to know about the leaves. It needs bounds only for messages, and large leaves have many."""
    if spec is None:
        return None
    short = {role: [_with_short_bounds(leaf) for leaf in spec[role]] for role in ("observation", "action", "info")}
    return {**spec, **short}


def _with_short_bounds(leaf: dict[str, Any]) -> dict[str, Any]:
    return leaf if len(leaf["low"]) <= 64 else {**leaf, "low": [min(leaf["low"])], "high": [max(leaf["high"])]}
