"""Saves the envs of an engine, and gives them saved states: what views and managers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stepmill import _native
from stepmill.errors import EnvError, EnvIdError, InputError, StateError, UnsupportedError
from stepmill.hosts.process.notes import note_of_bytes, write_own_note
from stepmill.hosts.process.remote_error import describe, rebuild
from stepmill.values.saved_states import SavedState, SavedStates, StateOrigin, configuration_text, space_text

_MOVABLE = ("memory", "simulator", "methods", "pickle")  # the kinds of states that mean something in another process


class PoolMemory(NamedTuple):
    """Everything that decides how the envs of a pool go on, and what their engine hands out next.

    Attributes:
        origins: What all of its envs are.
        env_ids: Those that were ever reset; the seed of an env that was not is its state.
        states: Of these envs; None if there are none.
        rest: What ``_native.EngineCheckpoint`` has taken: rows that nobody has received, what the next resets are
            given, counts.
        on_its_way: The batch of a call that was interrupted when it was about to return it; None if there is none.
    """

    origins: tuple[StateOrigin, ...]
    env_ids: list[int]
    states: SavedStates | None
    rest: Any
    on_its_way: _ResultOnItsWay | None


class _ResultOnItsWay(NamedTuple):
    """A result that the next call returns, or the error that it raises with it."""

    result: Any
    error: EnvError | None
    causes: list[bytes | None]  # of the errors; pickle leaves them out

    @classmethod
    def of(cls, result: Any, error: EnvError | None) -> _ResultOnItsWay:
        causes = [] if error is None else [one.__cause__ for one in error.errors]
        return cls(result, error, [None if one is None else describe(one) for one in causes])

    def parts(self) -> tuple[Any, EnvError | None]:
        for one, cause in zip([] if self.error is None else self.error.errors, self.causes, strict=True):
            one.__cause__ = None if cause is None else rebuild(cause)
        return self.result, self.error


class StateKeeper:
    """Saves and restores the envs of one engine.

    Args:
        engine: Steps the envs.
        name: What they are.
        configs: Their configurations, one per env. Envs that share one share the object.
        max_episode_steps: Their time limit, if they do not have their own ones.
    """

    def __init__(
        self, engine: _native.Engine, name: str, configs: Sequence[Mapping[str, Any]], max_episode_steps: int | None
    ) -> None:
        self._engine = engine
        self._num_envs = len(configs)
        self._ways: tuple[str, ...] = engine.host.state_ways
        # Each Python env is asked when it is saved.
        kind = "methods" if self._ways[0] == "methods" else self.kind
        self._why_not = kind.partition(": ")[2] if kind.startswith("none") else None
        limits = engine.host.episode_limits or [max_episode_steps] * self._num_envs
        known: dict[tuple[int, int | None], StateOrigin] = {}  # thousands of envs usually share one configuration
        spaces = space_text(engine.host.observation), space_text(engine.host.action)
        keys = list(zip(map(id, configs), limits, strict=True))
        for env_id, (config, key) in enumerate(zip(configs, keys, strict=True)):
            if key not in known:
                simulator = engine.host.fingerprint(env_id) if kind == "simulator" else ""
                told = configuration_text(config), limits[env_id], simulator, *spaces, engine.host.code
                known[key] = StateOrigin(name, self._ways[0], *told)
        origins = tuple(known[key] for key in keys)
        self._origins = origins[:1] if len(set(known.values())) == 1 else origins

    @property
    def kind(self) -> str:
        """See ``PoolView.state_kind``."""
        kind: str = self._engine.use(getattr, self._engine.host, "state_kind")
        return kind

    def save(self, env_ids: Any, by: str | None = None) -> SavedStates:
        """The states of some envs; None: of all. ``by``: the way to save them, if it is not the usual one."""
        self._check_kind("save", by)
        return self._states_of(env_ids, by, *_native.EngineStates(self._engine).save(env_ids, by))

    def _states_of(
        self, env_ids: Any, by: str | None, buffer: bytes, bounds: Any, kept: list[Any] | None
    ) -> SavedStates:
        """What the engine has saved. ``kept``: if some of the states are elsewhere, see ``StateTicket``."""
        origins = self._origins_of(env_ids, by)
        if kept is None:
            return SavedStates(origins, buffer, bounds)
        origins = _of_kinds(origins, [getattr(one, "kind", None) for one in kept])
        return SavedStates(origins, buffer, bounds, tuple(getattr(one, "keeper", None) for one in kept))

    def restoring(self, given: Any, env_ids: Any) -> tuple[Any, tuple[Any, ...]]:
        """The function that restores, and its arguments: nothing is to happen between it and the caller."""
        states = self.checked(given, env_ids)
        return _native.EngineStates(self._engine).restore, (*states.parts, env_ids, states)

    def send_restore(self, states: SavedStates, env_ids: Sequence[int]) -> None:
        """Restores states that ``checked`` has returned, for an engine that gives results as they are ready."""
        buffer, bounds = states.parts
        _native.EngineStates(self._engine).send_restore(buffer[:], bounds, env_ids, states)

    def checked(self, given: Any, env_ids: Any) -> SavedStates:
        """One state per env, from what the user gave. Raises if one of them is not for its env."""
        self._check_kind("restore")
        count = self._num_envs if env_ids is None else _count_of(env_ids)
        if isinstance(given, SavedState):
            given = given.repeated(count)
        states = _read_states(given, count)
        self._check_origins("restore", states.origins, env_ids, count)
        return states

    def save_all(self, by: str | None) -> PoolMemory:
        """Waits until every action has its result, and saves the whole pool."""
        self._check_kind("checkpoint", by)
        env_ids, saved, rest, on_its_way = self._checkpoint().take(by)
        states = None if saved is None else self._states_of(env_ids, by, *saved)
        kinds = {one.kind for one in (() if states is None else states.origins)}
        for kind in kinds.difference(_MOVABLE):
            raise UnsupportedError(f"checkpoint: states of the kind {kind!r} cannot leave this process")
        held = None if on_its_way is None else _ResultOnItsWay.of(*on_its_way)
        return PoolMemory(self._origins, env_ids, states, rest, held)

    def restore_all(self, memory: PoolMemory) -> None:
        """Makes a new pool what another one was. If it raises, the pool is of no use any more."""
        self._check_kind("resume")
        self._check_origins("resume", memory.origins, None, self._num_envs)
        if memory.states is not None:
            function, arguments = self.restoring(memory.states, memory.env_ids)
            function(*arguments)
        held = memory.on_its_way
        self._checkpoint().give(memory.rest, None if held is None else held.parts())

    def _checkpoint(self) -> _native.EngineCheckpoint:
        is_here = self._engine.host.backend in ("inline", "thread")
        return _native.EngineCheckpoint(self._engine, *((write_own_note, note_of_bytes) if is_here else (None, None)))

    def _check_kind(self, what: str, by: str | None = None) -> None:
        if self._why_not is not None:
            raise UnsupportedError(f"{what}: {self._why_not}")
        if by is not None and by not in self._ways:
            ways = " or ".join(map(repr, self._ways))
            needed = "; it needs backend='process', num_workers=num_envs, and envs whose methods are not coroutines"
            hint = needed if by == "fork" else ""
            raise UnsupportedError(f"{what}: by: expected {ways}, the ways to save these envs, got {by!r}{hint}")

    def _origins_of(self, env_ids: Any, way: str | None = None) -> tuple[StateOrigin, ...]:
        origins = self._origins
        if env_ids is not None and len(origins) > 1:
            try:
                origins = tuple(origins[env_id] for env_id in env_ids)
            except (IndexError, TypeError):
                raise EnvIdError(f"env_ids: expected ids in range [0, {self._num_envs}), got {env_ids!r}") from None
        return origins if way in (None, self._ways[0]) else tuple(replace(one, kind=way) for one in origins)

    def _check_origins(self, call: str, origins: tuple[StateOrigin, ...], env_ids: Any, count: int) -> None:
        targets = self._origins_of(env_ids)
        if origins == targets:
            return
        for i in range(count):
            mine = origins[0] if len(origins) == 1 else origins[i]
            target = targets[0] if len(targets) == 1 else targets[i]
            if mine.kind in self._ways:
                target = replace(target, kind=mine.kind)
            if mine != target:
                mine.refuse(call, target, i if env_ids is None else int(env_ids[i]))


def _of_kinds(origins: tuple[StateOrigin, ...], kinds: list[str | None]) -> tuple[StateOrigin, ...]:
    """The origins of states that were saved in these ways; None: in the way that the origin says."""
    each = origins * len(kinds) if len(origins) == 1 else origins
    known = tuple(replace(one, kind=kind or one.kind) for one, kind in zip(each, kinds, strict=True))
    return known[:1] if len(set(known)) == 1 else known


def _count_of(env_ids: Any) -> int:
    try:
        return len(env_ids)
    except TypeError:
        raise EnvIdError(f"env_ids: expected a 1-d array of integers, got {env_ids!r}") from None


def _read_states(given: Any, count: int) -> SavedStates:
    if isinstance(given, list | tuple) and all(isinstance(one, SavedState) for one in given):
        given = SavedStates.of(given)
    if not isinstance(given, SavedStates):
        raise InputError(
            f"restore: expected what save() returned, a list of such states, or one of them, got {type(given).__name__}"
        )
    if len(given) != count:
        raise StateError(
            f"restore: expected {count} state{'' if count == 1 else 's'}, one per env, got {len(given)}; one state, as "
            "in states[0], is for all"
        )
    return given
