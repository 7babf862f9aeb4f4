"""Python envs in the calling thread: the reference that every other backend is tested against."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stepmill import _native
from stepmill.errors import EnvError
from stepmill.factories import close_quietly
from stepmill.pool.attributes import call_env, contained, get_attribute, set_attribute
from stepmill.pool.description import EnvDescription
from stepmill.pool.faults import Fault, FaultPolicy
from stepmill.pool.infos import plain_info
from stepmill.pool.own_envs import EnvBuilder
from stepmill.pool.python_pool import Preparation, PythonPool, engine_arguments, guarded
from stepmill.pool.rows import Note, RowFinisher, objects_of, snapshot
from stepmill.pool.settings import Settings, refuse_same_step
from stepmill.pool.source import PythonSource
from stepmill.spaces import flatten

__all__ = ["InlinePool"]


class InlinePool(PythonPool):
    """Steps its envs one after the other, in ``recv``."""

    backend = "inline"

    def __init__(
        self,
        source: PythonSource,
        settings: Settings,
        finisher: type[RowFinisher] = RowFinisher,
    ) -> None:
        self._builder = EnvBuilder(source)
        self._envs = self._build(settings.num_envs)
        described = EnvDescription.of(self._envs[0])
        refuse_same_step(described.num_players, settings)
        self.metadata, self.render_mode = described.metadata, described.render_mode
        self.num_players = described.num_players
        observation, action = flatten(described.observation_space), flatten(described.action_space)
        finish = finisher(observation, FaultPolicy(settings.on_error, settings.max_restarts), settings.autoreset)
        core = _native.Pool.make_inline(
            **engine_arguments(observation, action, described.num_players, settings),
            envs=list(self._envs),
            limits=[env.max_episode_steps for env in source.envs],
            snapshot=snapshot,
            objects_of=functools.partial(objects_of, observation.tree) if observation.object_spaces else None,
            on_rows=functools.partial(_finish, finish),
        )
        super().__init__(core, observation, action, settings)

    def _build(self, num_envs: int) -> list[Any]:
        envs: list[Any] = []
        try:
            for i in range(num_envs):
                envs.append(self._builder.build(i))
                with contained(i, "constructor"):
                    EnvDescription.of(envs[i]).check_like(i, EnvDescription.of(envs[0]), 0)
        except BaseException:
            for env in envs:
                close_quietly(env)
            raise
        return envs

    def send_reset(
        self,
        env_id: Any,
        seeds: Sequence[int | None] | None,
        options: Any,
        *,
        prepare: Preparation | None = None,
    ) -> None:
        # Called by the engine: a reset that is refused must not have told or renewed anything.
        prepare_them = None if prepare is None else functools.partial(self._prepare, prepare)
        self._core.send_reset(env_id, seeds, self._pack_all_options(options), prepare_them)

    def _prepare(self, prepare: Preparation, env_ids: Sequence[int]) -> None:
        for env_id in env_ids:
            try:
                if prepare.renew:
                    close_quietly(self._envs[env_id])
                    self._envs[env_id] = self._builder.build(env_id)
                    self._core.replace(env_id, self._envs[env_id])
                if prepare.tell is not None:
                    prepare.tell(self._envs[env_id])
            except KeyboardInterrupt:
                raise
            except EnvError as error:  # of the constructor: its own exception is the cause
                self._core.fail_next(env_id, error.__cause__ or error)
            except BaseException as error:
                self._core.fail_next(env_id, error)

    # ---- the envs themselves -----------------------------------------------------------------

    @guarded
    def call(self, name: str, env_ids: Sequence[int], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        return self._each("call", env_ids, lambda env: call_env(env, name, args, kwargs))

    @guarded
    def get_attr(self, name: str, env_ids: Sequence[int]) -> list[Any]:
        return self._each("get_attr", env_ids, lambda env: get_attribute(env, name))

    @guarded
    def set_attr(self, name: str, values: Sequence[Any], env_ids: Sequence[int]) -> None:
        for env_id, value in zip(env_ids, values, strict=True):
            with contained(env_id, "set_attr"):
                set_attribute(self._envs[env_id], name, value)

    @guarded
    def apply(self, function: Callable[[Any], Any], env_ids: Sequence[int]) -> list[Any]:
        """``function(env)`` of each."""
        return self._each("call", env_ids, function)

    @guarded
    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        frames = []
        for env_id in env_ids:
            try:
                frames.append(self._envs[env_id].render())
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise _failure(env_id, "render", error) from error
        return tuple(frames)

    def _each(self, phase: str, env_ids: Sequence[int], function: Callable[[Any], Any]) -> list[Any]:
        out = []
        for env_id in env_ids:
            with contained(env_id, phase):
                out.append(function(self._envs[env_id]))
        return out

    # ---- ending ------------------------------------------------------------------------------

    def close(self) -> None:
        self._core.close()
        if self._core.forked:
            return  # the envs are the parent's
        self._builder.forget()
        errors = []
        while self._envs:  # those that an interrupted close left
            env_id = self._settings.num_envs - len(self._envs)
            env = self._envs.pop(0)
            try:
                env.close()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                errors.append(_failure(env_id, "close", error))
        if errors:
            raise EnvError.gather(errors)

    def __del__(self) -> None:
        """Ends with its last user: the view, or one of its methods that somebody kept."""
        try:  # noqa: SIM105  (when the interpreter ends, contextlib may be gone)
            self.close()
        except Exception:  # nobody is there to hear of it; or it was never built
            pass


def _finish(finish: RowFinisher, result: Any, notes: Sequence[Any], faults: Sequence[Any]) -> Any:
    return finish(result, [_read_note(*note) for note in notes], [Fault.read(fault) for fault in faults])


def _read_note(row: int, env_id: int, info: Any, final_info: Any, *rest: Any) -> Note:
    return Note(row, env_id, plain_info(info, env_id), plain_info(final_info, env_id), *rest)


def _failure(env_id: int, phase: str, error: BaseException) -> EnvError:
    return Fault(env_id, phase, 0, 0, 1, "").caused_by(error).error()
