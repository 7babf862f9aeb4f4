"""Python envs in the calling thread: the reference that every other backend is tested against."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stepmill import _native
from stepmill.errors import EnvError
from stepmill.hosts.faults import Fault, FaultPolicy, contained
from stepmill.hosts.frames import FramesAtOnce
from stepmill.hosts.host import ClosedWhenDropped, Preparation, host_arguments, python_env_arguments
from stepmill.hosts.infos import info_leaves, plain_info
from stepmill.hosts.python_states import ELSEWHERE, WAYS, PythonStates, common_kind, raise_first
from stepmill.hosts.rows import Note, RowFinisher, object_copier, object_parts, snapshot
from stepmill.registry.attributes import call_env, get_attribute, set_attribute
from stepmill.registry.description import EnvDescription
from stepmill.registry.factories import close_env, close_quietly
from stepmill.settings import Settings, check_players
from stepmill.sources.builder import EnvBuilder
from stepmill.sources.models.env_model import ModelQuestion, ask_each, ask_model
from stepmill.sources.source import PythonSource
from stepmill.system.uninterrupted import uninterrupted
from stepmill.values.spaces import flatten

if TYPE_CHECKING:  # imported where it is needed: it brings asyncio
    from stepmill.hosts.coroutines import OwnLoop


class InlineHost(ClosedWhenDropped, FramesAtOnce, _native.InlineHost):
    """A ``Host`` whose envs are stepped one after another, in ``recv``."""

    backend = "inline"
    is_native = False
    code = ""
    state_ways = WAYS
    keeps_former = False  # whether envs elsewhere may not take their states, so that those here are put back
    state_advice = ELSEWHERE  # for envs that have no state
    _own_loop: OwnLoop | None = None  # of envs whose methods are coroutines

    def __init__(
        self,
        source: PythonSource,
        settings: Settings,
        finisher: type[RowFinisher] = RowFinisher,
    ) -> None:
        self._builder = EnvBuilder(source)
        self._envs: list[Any] = []
        self._proven: set[int] = set()  # whose pickles can be trusted
        self.episode_limits = [env.max_episode_steps for env in source.envs]
        self._num_envs = settings.num_envs
        try:
            self._build_envs()
            self._describe(settings, finisher)
            has_objects = bool(self.observation.object_spaces)
            loop = self._own_loop
            super().__init__(
                **host_arguments(source.id, self.backend, settings, None),
                **python_env_arguments(self.observation, self.action, self.described, self._infos),
                envs=list(self._envs),
                limits=self.episode_limits,
                snapshot=snapshot,
                objects_of=object_copier(self.observation.tree) if has_objects else None,
                await_now=None if loop is None else loop.run,
                episode_over=None if loop is None else loop.end_episode,
                check_usable=None if loop is None else loop.check_usable,
            )
            for env_id in self._builder.models:
                self.before_reset(env_id, self._builder.models.before_reset(env_id))
        except BaseException:
            for env in self._envs:
                close_quietly(env)
            raise
        self._is_built = True

    def _build_envs(self) -> None:
        for i in range(self._num_envs):
            self._envs.append(self._builder.build(i))
            with contained(i, "constructor"):
                EnvDescription.of(self._envs[i]).check_like(i, EnvDescription.of(self._envs[0]), 0)

    def _describe(self, settings: Settings, finisher: type[RowFinisher]) -> None:
        """What views show, and what the engine is told."""
        described = EnvDescription.of_all(self._envs)
        self.described = described
        check_players(described.num_players, settings)
        self.metadata, self.render_mode = described.metadata, described.render_mode
        self.num_players, self.player_kinds = described.num_players, described.player_kinds
        self.observation, self.action = flatten(described.observation_space), flatten(described.action_space)
        self.info_space = described.info_space
        if described.is_async:
            from stepmill.hosts.coroutines import OwnLoop

            OwnLoop.check_usable()
            self._own_loop = OwnLoop()
            self.state_advice = ""  # a worker process has no other way for them
        self._infos = info_leaves(described.info_space if finisher.takes_info_arrays else None, settings.autoreset)
        self.policy = FaultPolicy(settings.on_error, settings.max_restarts)
        self._finish = finisher(self.observation, self.policy, settings.autoreset)

    # ---- what the engine calls ---------------------------------------------------------------

    def finish_rows(self, result: Any, notes: Sequence[Any], faults: Sequence[Any]) -> tuple[Any, EnvError | None]:
        """See ``RowFinisher``."""
        return self._finish(result, [_read_note(*note) for note in notes], [Fault.read(fault) for fault in faults])

    def pack_actions(self, action: Any, env_ids: Sequence[int]) -> dict[int, list[Any]]:
        """The object parts, unchanged."""
        return object_parts(self.action, action, env_ids)

    def pack_objects(self, objects: list[Any]) -> list[Any]:
        """The parts of one env, unchanged."""
        return objects

    def pack_options(self, options: dict[str, Any] | None, _: Preparation | None) -> Any:
        """The options, unchanged; ``prepare`` is called separately."""
        return options

    def prepare(self, preparation: Preparation, env_ids: Sequence[int]) -> None:
        """Renews envs and calls ``tell``. What that raises, the reset will raise."""
        for env_id in env_ids:
            try:
                if preparation.renew:
                    self._renew(env_id)
                if preparation.tell is not None:
                    preparation.tell(self._envs[env_id])
            except KeyboardInterrupt:
                raise
            except EnvError as error:  # from the constructor, whose own exception is the cause
                self.fail_next(env_id, error.__cause__ or error)
            except BaseException as error:
                self.fail_next(env_id, error)

    def _renew(self, env_id: int) -> None:
        close_quietly(self._envs[env_id], functools.partial(self._awaited, env_id))
        self._put_env(env_id, self._builder.build(env_id))

    def _put_env(self, env_id: int, env: Any) -> None:
        self._envs[env_id] = env
        self.replace(env_id, env)
        self.before_reset(env_id, self._builder.models.before_reset(env_id))

    # ---- saved states ------------------------------------------------------------------------

    @property
    def _states(self) -> PythonStates:
        return PythonStates(self, self._envs.__getitem__, self._put_saved, self._renew, self._proven, self.state_advice)

    def _put_saved(self, env_id: int, env: Any) -> None:
        self._builder.adopt(env_id, env)
        self._put_env(env_id, env)

    @property
    def state_kind(self) -> str:
        return common_kind(self._states.kind(env_id) for env_id in range(self._num_envs))

    def save_envs(self, env_ids: Sequence[int], by: str | None) -> list[bytes]:
        own = self._states
        return [own.save(env_id, by) for env_id in env_ids]

    def load_envs(self, env_ids: Sequence[int], states: Sequence[bytes], former: list[Any]) -> BaseException | None:
        own = self._states
        contents = [own.read(*one) for one in zip(env_ids, states, strict=True)]
        pairs = list(zip(env_ids, contents, strict=True))
        if not self.keeps_former and all(own.is_sure(*one) for one in pairs):
            return self._load_surely(pairs)
        for env_id, content in pairs:
            former.append(own.former(env_id, content))
            own.give(env_id, content)
        return None

    def _load_surely(self, pairs: Sequence[tuple[int, Any]]) -> BaseException | None:
        """Gives envs states that they take in any case: again, if a signal handler raises meanwhile."""
        own = self._states

        def give(_: int | None) -> None:
            for env_id, content in pairs:
                own.give(env_id, content)

        try:
            give(None)
        except BaseException as error:
            uninterrupted(give)
            return error
        return None

    def put_back(self, env_ids: Sequence[int], former: Sequence[Any]) -> None:
        given = zip(env_ids, former, strict=False)  # the others were not given anything
        raise_first([functools.partial(self._states.give_back, *one) for one in given])

    # ---- the envs themselves -----------------------------------------------------------------

    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._each("call", env_ids, lambda env: call_env(env, name, args, kwargs))

    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return self._each("get_attr", env_ids, lambda env: get_attribute(env, name))

    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        for env_id, value in zip(env_ids, values, strict=True):
            with contained(env_id, "set_attr"):
                set_attribute(self._envs[env_id], name, value)

    def apply(self, function: Callable[[Any], Any], env_ids: Sequence[int]) -> list[Any]:
        """``function(env)`` for each env."""
        return self._each("call", env_ids, function)

    def ask_models(self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]) -> list[Any]:
        models = self._builder.models

        def ask(env_id: int, argument: Any) -> Any:
            with contained(env_id, "call"):
                answer = ask_model(models.of(env_id, self._envs[env_id]), env_id, question, argument)
            if question == "set_model":
                self.before_reset(env_id, models.before_reset(env_id))
            return answer

        return ask_each(question, arguments, env_ids, ask)

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        frames = []
        for env_id in env_ids:
            try:
                frames.append(self._draw(env_id))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise Fault.in_call(env_id, "render", error) from error
        return tuple(frames)

    def _draw(self, env_id: int) -> Any:
        return self._awaited(env_id, self._envs[env_id].render())

    def _awaited(self, env_id: int, value: Any) -> Any:
        """What a method has returned or, if it is a coroutine, what comes of it."""
        if self._own_loop is None or not inspect.isawaitable(value):
            return value
        self._own_loop.check_usable()
        return self._own_loop.run(env_id, value)

    def _each(self, phase: str, env_ids: Sequence[int], function: Callable[[Any], Any]) -> list[Any]:
        out = []
        for env_id in env_ids:
            with contained(env_id, phase):
                out.append(self._awaited(env_id, function(self._envs[env_id])))
        return out

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        super().close()
        if self.forked:
            return  # the envs belong to the parent
        self._builder.forget()
        errors = []
        while self._envs:  # a call after an interrupted one continues with the rest
            env_id = self._num_envs - len(self._envs)
            env = self._envs.pop(0)
            try:
                self._awaited(env_id, close_env(env))
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                errors.append(Fault.in_call(env_id, "close", error))
        if self._own_loop is not None:
            self._own_loop.close()
        if errors:
            raise EnvError.gather(errors)


def _read_note(row: int, env_id: int, info: Any, final_info: Any, *rest: Any) -> Note:
    return Note(row, env_id, plain_info(info, env_id), plain_info(final_info, env_id), *rest)
