"""What the hosts share whose envs are elsewhere, in worker processes or on a cluster: what they send is pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import cloudpickle
from gymnasium import spaces

from stepmill.errors import ActionError, EnvError, ResetOptionError
from stepmill.hosts.faults import Fault
from stepmill.hosts.host import (
    ClosedWhenDropped,
    Preparation,
    host_arguments,
    native_env_arguments,
    native_spaces,
    python_env_arguments,
)
from stepmill.hosts.infos import info_leaves
from stepmill.hosts.process import plain
from stepmill.hosts.process.notes import read_notes
from stepmill.hosts.process.pickling import Destination, dumps_argument
from stepmill.hosts.rows import Note, RowFinisher, object_parts
from stepmill.registry.description import EnvDescription
from stepmill.settings import Settings
from stepmill.sources.models.env_model import ModelQuestion
from stepmill.sources.models.fields import ModelChange
from stepmill.sources.simulator import SimulatorSource
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.values.spaces import FlatSpace, flatten


class EnvsElsewhere(ClosedWhenDropped):
    """The part of a ``PythonHost`` that does not depend on where elsewhere is."""

    backend: str
    metadata: dict[str, Any]
    render_mode: str | None
    num_players: int
    player_kinds: tuple[str, ...] = ()
    described: EnvDescription  # of Python envs
    observation: FlatSpace
    action: FlatSpace
    info_space: spaces.Dict | None
    _destination: Destination
    _finisher: RowFinisher
    _model_changes: dict[int, ModelChange]  # by env id: all that was set since the pool was made
    _simulators: SimulatorSource | None

    # ---- starting ----------------------------------------------------------------------------

    def _read_spaces(self, source: PythonSource | NativeSource, told: Sequence[tuple[int, bytes | None]]) -> None:
        """``told``: by the first env of each group, how the group describes its Python envs."""
        if isinstance(source, NativeSource):
            self.metadata, self.render_mode = source.metadata, source.render_mode
            self.num_players = source.max_num_players
            self.observation, self.action = native_spaces(source)
            self.info_space = source.info_space
            return
        (_, first), *others = told
        described = _description(first, source)
        for env_id, payload in others:
            if payload != first:
                other = _description(payload, source)
                other.check_like(env_id, described, 0)
                described = described.common(other)
        self.described = described
        self.metadata, self.render_mode = described.metadata, described.render_mode
        self.num_players, self.player_kinds = described.num_players, described.player_kinds
        self.observation, self.action = flatten(described.observation_space), flatten(described.action_space)
        self.info_space = described.info_space

    def _native_arguments(
        self, source: PythonSource | NativeSource, settings: Settings
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the native half of a host needs to know about the pool, and about its envs."""
        if isinstance(source, NativeSource):
            return (
                host_arguments(source.id, self.backend, settings, source.max_episode_steps),
                native_env_arguments(source),
            )
        infos = info_leaves(self.info_space if self._finisher.takes_info_arrays else None, settings.autoreset)
        envs = python_env_arguments(self.observation, self.action, self.described, infos)
        return host_arguments(source.id, self.backend, settings, None), envs

    # ---- what goes with actions and resets: (options, objects, preparation), one of them at a time ---------

    def pack_actions(self, action: Any, env_ids: Sequence[int]) -> dict[int, bytes]:
        """The object parts, pickled."""
        parts = object_parts(self.action, action, env_ids)
        return {env_id: self.pack_objects(objects) for env_id, objects in parts.items()}

    def pack_objects(self, objects: list[Any]) -> bytes:
        """The parts of one env, pickled."""
        return dumps_argument("action", (None, objects, None), ActionError, self._destination)

    def pack_options(self, options: dict[str, Any] | None, preparation: Preparation | None) -> bytes | None:
        """The options of one env, with what happens to it before its reset."""
        if options is None and preparation is None:
            return None
        return dumps_argument("reset options", (options, None, preparation), ResetOptionError, self._destination)

    def prepare(self, preparation: Preparation, env_ids: Sequence[int]) -> None:
        """Does nothing: the preparation was sent with the options, and happens where the envs live."""

    # ---- rows --------------------------------------------------------------------------------

    def finish_rows(
        self, result: Any, notes: Sequence[tuple[int, int, bytes]], faults: Sequence[Any]
    ) -> tuple[Any, EnvError | None]:
        """See ``RowFinisher``."""
        read: list[Note] = []
        messages: dict[int, str] = {}
        for note, (_, env_id, _) in zip(read_notes(notes), notes, strict=True):
            if isinstance(note, str):  # what a native env threw
                messages[env_id] = note
            elif note is not None:
                read.append(note)
        known = [Fault.read(one) for one in faults]
        known = [self._explained(replace(one, message=messages.get(one.env_id, one.message))) for one in known]
        return self._finisher(result, read, known)

    def _explained(self, fault: Fault) -> Fault:
        """The same fault, with what only this host knows about it."""
        return fault

    # ---- models ------------------------------------------------------------------------------

    def ask_models(self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]) -> list[Any]:
        """What is set is remembered here, for those that take the place of dead workers or actors."""
        ask = self._model_questions(question, arguments, env_ids)  # what cannot be asked changes nothing
        if question == "set_model":  # before we ask: what replaces one that dies now is told
            for env_id, change in zip(env_ids, arguments, strict=True):
                self._model_changes[env_id] = self._model_changes.get(env_id, ModelChange()).then(change)
        return ask()

    def _remember_states(self, env_ids: Sequence[int], states: Sequence[bytes], former: list[Any]) -> None:
        """What was changed in the models of envs that are given states; before that, in case one dies meanwhile.

        Adds what was known of them to ``former``, for ``_remember_changes``.
        """
        if self._simulators is not None:
            changes = [self._simulators.change_in(*one) for one in zip(env_ids, states, strict=True)]
            former += map(self._model_changes.get, env_ids)
            self._remember_changes(env_ids, changes)

    def _remember_changes(self, env_ids: Sequence[int], changes: Sequence[ModelChange | None]) -> None:
        """All that was changed in the models of envs that were given states."""
        for env_id, change in zip(env_ids, changes, strict=False):  # none for envs without a simulator
            self._model_changes.pop(env_id, None)
            if change is not None:
                self._model_changes[env_id] = change

    def _model_questions(
        self, question: ModelQuestion, arguments: Sequence[Any], env_ids: Sequence[int]
    ) -> Callable[[], list[Any]]:
        """Packs the questions, and returns what asks them."""
        raise NotImplementedError

    def _model_changes_of(self, envs: range) -> dict[int, ModelChange]:
        return {env_id: change for env_id, change in self._model_changes.items() if env_id in envs}


def _description(payload: bytes | None, source: PythonSource) -> EnvDescription:
    """What was said of envs. Beside islands, the spaces at home are plain too: they must be the same."""
    described: EnvDescription = cloudpickle.loads(payload or b"")
    if not source.has_islands:
        return described
    seen, done = pickle.loads(plain.dumps((described.observation_space, described.action_space)))
    return replace(described, observation_space=seen, action_space=done)
