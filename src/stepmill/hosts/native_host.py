"""Native envs in this process: on threads, or in the calling thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

from stepmill import _native
from stepmill.errors import EnvError, StepmillError, summary
from stepmill.hosts import host
from stepmill.hosts.faults import Fault, FaultPolicy
from stepmill.hosts.frames import FramesAtOnce
from stepmill.hosts.host import NativeStates, host_arguments, make_simulators, native_env_arguments, native_spaces
from stepmill.hosts.rows import Note
from stepmill.settings import Settings, check_players
from stepmill.sources.drawing import Renderer
from stepmill.sources.models.env_model import ModelQuestion, ask_each, ask_model
from stepmill.sources.source import NativeSource
from stepmill.system.warn_once import warn


class NativeHost(NativeStates, FramesAtOnce, _native.NativeHost):
    """A ``Host``. Its envs are not Python objects, so it has no ``call``, ``get_attr`` and the like."""

    is_native = True
    player_kinds: tuple[str, ...] = ()
    info_space: spaces.Dict | None
    _renderer: Renderer | None = None  # until the host is built

    def __init__(self, source: NativeSource, settings: Settings) -> None:
        check_players(source.max_num_players, settings)
        self._source_id = source.id
        self._simulators, self.code = source.simulators, source.code
        self._num_envs = settings.num_envs
        self.backend = "inline" if settings.backend == "inline" else "thread"
        self.observation, self.action = native_spaces(source)
        self.info_space = source.info_space
        self.num_players = source.max_num_players
        self.metadata, self.render_mode = source.metadata, source.render_mode
        self.policy = FaultPolicy(settings.on_error, settings.max_restarts)
        simulators = make_simulators(source.simulators, range(settings.num_envs))
        super().__init__(
            **host_arguments(source.id, self.backend, settings, source.max_episode_steps),
            **native_env_arguments(source),
            simulators=simulators,
            num_threads=0 if settings.backend == "inline" else settings.num_threads,
            affinity_offset=settings.thread_affinity_offset,
        )
        self._renderer = Renderer(source, simulators)

    def finish_rows(self, result: Any, notes: Sequence[Any], faults: Sequence[Any]) -> tuple[Any, EnvError | None]:
        """Decides about failures; native envs have no notes but what Python callbacks in a simulator raised."""
        raised = {note.env_id: note.error for note in (Note(*one) for one in notes) if note.error is not None}
        known = [Fault.read(fault) for fault in faults]
        for i, fault in enumerate(known):
            if cause := raised.get(fault.env_id):
                known[i] = fault.caused_by(cause, message=f"a callback of its simulator raised {summary(cause)}")
        return result, self.policy.error_of(known)

    def show_slow(self, env_id: int) -> None:
        """Tells the user of an env that may wait for something, and takes very long."""
        warn(
            f"{self._source_id}: env {env_id} has been in step or reset for {host.SLOW_S:g} s, on a thread, where "
            "nothing can end it. In a worker process (backend='process') it can have a deadline: step_timeout, "
            "reset_timeout"
        )

    @property
    def state_ways(self) -> tuple[str, ...]:
        """The kinds of states that envs here may take."""
        return self._native_ways()

    @property
    def state_kind(self) -> str:
        """How envs are saved; see ``PoolView.state_kind``."""
        return self._native_kind(self._source_id, self.can_save)

    def ask_models(self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]) -> list[Any]:
        """Native envs have a model if they have a simulator."""
        if question in ("try_model", "set_model"):  # all of them, before anything changes
            self.check_idle(env_ids, "its model")

        def ask(env_id: int, argument: Any) -> Any:
            answer = ask_model(self.simulator(env_id), env_id, question, argument)
            if question == "set_model":
                self.connect(env_id)
            return answer

        return ask_each(question, arguments, env_ids, ask)

    def render(self, env_ids: Sequence[int]) -> tuple[Any, ...]:
        """Draws the envs, none of which may be in flight."""
        renderer = self._renderer
        assert renderer is not None
        renderer.check_usable()
        frames = []
        for env_id, picture in zip(env_ids, self.pictures(env_ids), strict=True):
            try:
                frames.append(renderer.draw(env_id, *picture))
            except (KeyboardInterrupt, StepmillError):
                raise
            except BaseException as error:
                raise Fault.in_call(env_id, "render", error) from error
        return tuple(frames)

    def _draw(self, env_id: int) -> Any:
        return self.render([env_id])[0]

    def close(self) -> None:
        """Ends the threads."""
        super().close()
        self._stop_drawing()

    def __del__(self) -> None:
        """Frees what was needed to draw when the engine is gone."""
        try:  # noqa: SIM105  # when the interpreter ends, modules may be gone, contextlib too
            self._stop_drawing()
        except Exception:  # there is no caller to raise it to
            pass

    def _stop_drawing(self) -> None:
        if self._renderer is not None and not self.forked:
            self._renderer.close()
