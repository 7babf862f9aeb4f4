"""What a worker does once its envs are built: serves them to the pool until told to stop.

The loop is C++ (``cpp/bindings/hosts/worker_object.cpp``). It calls the functions in this file for everything that
does not fit in arrays: reset options and objects on the way in; infos, objects and exceptions on the way out.
"""

from __future__ import annotations

import functools
import inspect
import os
import pickle
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from stepmill import _native
from stepmill.errors import EnvError, StateError
from stepmill.hosts.frames import frame_of
from stepmill.hosts.process import outgoing
from stepmill.hosts.process.forked.clone import Awakening, ForkedProcess
from stepmill.hosts.process.forked.unforkable import identity
from stepmill.hosts.process.notes import object_packer, write_note, write_text
from stepmill.hosts.process.remote_error import describe
from stepmill.hosts.process.wire import close_all, out_of_reach
from stepmill.hosts.python_states import BY_FORK, PythonStates
from stepmill.hosts.rows import snapshot
from stepmill.registry.attributes import call_env, get_attribute, set_attribute
from stepmill.registry.factories import close_env, close_quietly
from stepmill.sources.builder import EnvBuilder
from stepmill.sources.drawing import Renderer
from stepmill.sources.models.env_model import ask_model
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.system.guardian import exit_if_forked

if TYPE_CHECKING:  # imported where it is needed: it brings asyncio
    from stepmill.hosts.process.forked.event_loop import EventLoop


def serve(
    post: tuple[int, int, dict[str, Any]],
    source: PythonSource | NativeSource,
    builder: EnvBuilder | None,
    envs: list[Any],
    fds: list[int],
    set_current_env: Callable[[Callable[[], int | None]], None],
    process: ForkedProcess,
) -> list[tuple[int, bytes]]:
    """Runs until the pool stops this worker, then closes the envs. Returns (env id, exception) for each that raised.

    ``post`` is the worker id, the first env and the attachment.
    """
    worker_id, first_env, attachment = post
    arena, outbox, rows_event, *changes = fds
    loop = None
    if attachment["loop"] is not None:
        from stepmill.hosts.process.forked.event_loop import EventLoop

        bell, *changes = changes
        loop = EventLoop(len(envs), out_of_reach(bell), attachment["loop"])
    service = _Service(worker_id, source, builder, envs, first_env, process, loop)
    service.connect(attachment, arena, outbox, rows_event)
    for fd in changes:  # what was set while other workers had these envs
        for env_id, change in _read(fd).items():
            service.ask_model_of(env_id, "set_model", change)
    for fd in (arena, outbox, *changes):
        os.close(fd)
    if loop is not None:
        set_current_env(loop.current_env)
        loop.run()
        return loop.close_envs(envs, first_env)
    set_current_env(lambda: None if service.worker.running < 0 else service.worker.running)
    service.run()
    if service.renderer is not None:
        service.renderer.close()
    return _close_envs(envs, service.first_env, set_current_env)


def _close_envs(
    envs: list[Any], first_env: int, set_current_env: Callable[[Callable[[], int | None]], None]
) -> list[tuple[int, bytes]]:
    failed = []
    for env_id, env in enumerate(envs, first_env):
        set_current_env(partial(int, env_id))
        _native.set_crash_env(env_id)
        try:
            close_env(env)
        except BaseException as error:  # it may be anything: the other envs must be closed too
            failed.append((env_id, describe(error)))
        exit_if_forked()
    return failed


class _Service:
    """The envs of a worker, and what the loop calls for them. Of native envs, ``envs`` are the simulators, if any."""

    worker: _native.Worker

    def __init__(
        self,
        worker_id: int,
        source: PythonSource | NativeSource,
        builder: EnvBuilder | None,
        envs: list[Any],
        first_env: int,
        process: ForkedProcess,
        loop: EventLoop | None,
    ) -> None:
        self._loop = loop
        self._in_threads = isinstance(source, PythonSource) and source.threads
        self._worker_id, self._source, self._builder = worker_id, source, builder
        self._envs, self.first_env = envs, first_env
        self._process = process
        self.renderer = Renderer(source, envs or None, first_env) if isinstance(source, NativeSource) else None

    def run(self) -> None:
        """Runs the loop until the pool stops this worker."""
        while True:
            try:
                return self.worker.run()
            except Awakening as awakening:
                self._take_post(*awakening.post, awakening.fds)
                self._process.wait_to_serve()

    def _take_post(self, worker_id: int, first_env: int, attachment: dict[str, Any], fds: list[int]) -> None:
        """Makes this process, which was forked from a clone, another worker: its env goes on as an env of that."""
        memory = self.worker.memory(self.first_env)
        if self._builder is not None and first_env != self.first_env:
            self._builder.move(self.first_env, first_env)
        self._worker_id, self.first_env = worker_id, first_env
        self.__dict__.pop("_states", None)  # for the loop that ends here
        _native.install_crash_note(worker_id)
        arena, outbox, rows_event = fds
        self.connect(attachment, arena, outbox, rows_event)
        self.worker.set_memory(first_env, memory)
        close_all((arena, outbox))

    def connect(self, attachment: dict[str, Any], arena: int, outbox: int, rows_event: int) -> None:
        """Makes the loop, which is not running yet. Keeps the last descriptor."""
        source, envs, first_env = self._source, self._envs, self.first_env
        self._mappings = {identity(arena), identity(outbox)}
        common = {
            **attachment,
            "arena": arena,
            "outbox": outbox,
            "rows_event": self._process.take_rows_event(rows_event),
            "answer": self._answer,
            "read_mail": self._read_mail,
            "worker": self._worker_id,
            "first_env": first_env,
            "loop": self._loop,
        }
        if isinstance(source, NativeSource):
            configs = source.configs[first_env : first_env + attachment["env_count"]]
            common |= {"configs": configs, "simulators": envs or None}
            self.worker = _native.Worker(**common, write_note=write_text)
            return
        self.worker = _native.Worker(
            **common,
            envs=envs,
            limits=[env.max_episode_steps for env in source.envs[first_env : first_env + len(envs)]],
            snapshot=snapshot,
            objects_of=object_packer(attachment["observation_tree"]) if attachment["has_objects"] else None,
            write_note=write_note,
        )
        if self._loop is not None:
            self._loop.worker = self.worker
        for env_id in self._builder.models if self._builder is not None else ():
            self._model_changed(env_id)

    def ask_model_of(self, env_id: int, question: Any, argument: Any) -> Any:
        env = self._env(env_id)
        owner = env if self._builder is None else self._builder.models.of(env_id, env)
        result = ask_model(owner, env_id, question, argument)
        if question == "set_model":
            self._model_changed(env_id)
        return result

    def _env(self, env_id: int) -> Any:
        return self._envs[env_id - self.first_env] if self._envs else None

    def _model_changed(self, env_id: int) -> None:
        if self._builder is None:
            self.worker.connect(env_id)
        else:
            self.worker.before_reset(env_id, self._builder.models.before_reset(env_id))

    def _answer(self, env_id: int, question: bytes) -> bytes | Awaitable[bytes]:
        """Does what the pool asks of one env. Never raises: an exception becomes the answer."""
        try:
            kind, name, args, kwargs = pickle.loads(question)
            # A native env is not a Python object, so the worker answers for it.
            if kind == "random":
                value = self.worker.random_state(env_id)
            elif kind == "render":
                value = self._render(env_id)
            elif kind == "frame" and self._loop is not None:
                value = _frame_later(env_id, self._render(env_id), *args)
            elif kind == "frame":  # as a plain tuple: islands know no classes of ours
                value = tuple(frame_of(env_id, partial(self._render, env_id), *args))
            elif kind == "model":
                value = self.ask_model_of(env_id, name, *args)
            elif kind == "state":
                value = getattr(self._states, name)(env_id, *args)
            else:
                do = partial(_do, kind=kind, name=name, args=args, kwargs=kwargs)
                value = self._env(env_id).ask(do) if self._in_threads else do(self._env(env_id))
            what = f"{kind} {name!r} of env {env_id}"
            if self._loop is not None and inspect.isawaitable(value):
                return _answer_later(what, value)
            return outgoing.pickled_answer(what, value)
        except Awakening:  # this is another process: the question was not asked here
            raise
        except BaseException as error:
            return pickle.dumps((False, describe(error)))

    def _render(self, env_id: int) -> Any:
        if self.renderer is not None:
            return self.renderer.draw(env_id, *self.worker.picture(env_id))
        return self._env(env_id).render()

    def _read_mail(self, env_id: int, mail: bytes) -> tuple[Any, Any, BaseException | None]:
        """Reset options and objects of an action, or an exception, which fails the env and not the worker."""
        try:
            options, objects, prepare = pickle.loads(mail)
            if prepare is not None and prepare.renew:
                self._renew(env_id)
            if prepare is not None and prepare.tell is not None:
                prepare.tell(self._env(env_id))
            return options, objects, None
        except EnvError as error:  # from the constructor, whose own exception is the cause
            return None, None, error.__cause__ or error
        except BaseException as error:
            return None, None, error

    def _renew(self, env_id: int) -> None:
        assert self._builder is not None, "native envs are not built here"
        close_quietly(self._env(env_id))
        self._put_env(env_id, self._builder.build(env_id, self._worker_id))

    def _put_env(self, env_id: int, env: Any) -> None:
        self._envs[env_id - self.first_env] = env
        self.worker.replace(env_id, env)
        self._model_changed(env_id)

    def _put_saved(self, env_id: int, env: Any) -> None:
        assert self._builder is not None, "native envs are not pickled"
        self._builder.adopt(env_id, env)
        self._put_env(env_id, env)

    @functools.cached_property
    def _states(self) -> _PythonAnswers | _NativeAnswers | _ThreadedAnswers:
        if self._builder is None:
            return _NativeAnswers(self.worker)
        if self._in_threads:
            return _ThreadedAnswers()
        alone = len(self._envs) == 1 and self._loop is None  # a fork would share the loop's descriptors
        advice = "" if alone or self._loop is not None else BY_FORK
        states = PythonStates(self.worker, self._env, self._put_saved, self._renew, set(), advice)
        return _PythonAnswers(self.worker, states, partial(self._process.clone, self._mappings) if alone else None)


def _read(fd: int) -> Any:
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(fd, "rb", closefd=False) as file:
        return pickle.load(file)


# ---- saved states: the answers to questions about them -------------------------------------------


class _PythonAnswers:
    """``clone``: forks a clone of this process, if it has one env."""

    def __init__(self, worker: _native.Worker, states: PythonStates, clone: Callable[[int], int] | None) -> None:
        self._worker, self._states, self._clone = worker, states, clone

    def kind(self, env_id: int) -> str:
        kind = self._states.kind(env_id)
        return "fork" if kind.startswith("none") and self._clone is not None else kind

    def fork(self, env_id: int, call: int) -> int:
        assert self._clone is not None, "the caller knows how many envs a worker has"
        try:
            return self._clone(call)
        except (StateError, OSError) as error:
            raise StateError(f"save: env {env_id}: {error}") from None

    def save(self, env_id: int, by: str | None) -> bytes:
        return self._states.save(env_id, by)

    def load(self, env_id: int, state: bytes) -> None:
        self._worker.keep(env_id, None)
        content = self._states.read(env_id, state)
        self._worker.keep(env_id, self._states.former(env_id, content))
        self._states.give(env_id, content)

    def put_back(self, env_id: int) -> None:
        self._states.give_back(env_id, self._worker.take_kept(env_id))


class _ThreadedAnswers:
    _WHY = "an env in a thread of its own cannot be saved: what it does there goes on"

    def kind(self, _: int) -> str:
        return f"none: {self._WHY}"

    def save(self, env_id: int, _: str | None) -> bytes:
        raise StateError(f"save: env {env_id}: {self._WHY}")


class _NativeAnswers:
    def __init__(self, worker: _native.Worker) -> None:
        self._worker = worker

    def save(self, env_id: int, _: str | None) -> bytes:
        return self._worker.save(env_id)

    def load(self, env_id: int, state: bytes) -> None:
        self._worker.keep(env_id, self._worker.save(env_id))
        try:
            self._worker.load(env_id, state)  # if it refuses, `put_back` follows
        except ValueError as error:
            raise StateError(f"restore: env {env_id} did not take its state: {error}") from None

    def put_back(self, env_id: int) -> None:
        if (former := self._worker.take_kept(env_id)) is not None:
            self._worker.load(env_id, former)


# ---- calls ---------------------------------------------------------------------------------------


async def _frame_later(env_id: int, rendered: Any, *args: Any) -> tuple[Any, ...]:
    picture = await rendered if inspect.isawaitable(rendered) else rendered
    return tuple(frame_of(env_id, lambda: picture, *args))


async def _answer_later(what: str, value: Awaitable[Any]) -> bytes:
    try:
        return outgoing.pickled_answer(what, await value)
    except BaseException as error:  # as in ``_answer``
        return pickle.dumps((False, describe(error)))


def _do(env: Any, kind: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kind == "call":
        return call_env(env, name, args, kwargs)
    if kind == "get":
        return get_attribute(env, name)
    if kind == "apply":
        return args[0](env)
    set_attribute(env, name, *args)
    return None
