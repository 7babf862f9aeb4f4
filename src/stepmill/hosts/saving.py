"""Saves the envs of an engine, and gives them saved states: what views and managers share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stepmill import _native
from stepmill.errors import EnvIdError, InputError, StateError, UnsupportedError
from stepmill.spec import PoolSpec
from stepmill.values.saved_states import SavedState, SavedStates, StateOrigin, configuration_text


class StateKeeper:
    """Saves and restores the envs of one engine."""

    def __init__(self, engine: _native.Engine, spec: PoolSpec) -> None:
        self._engine = engine
        self._num_envs = len(spec.env_configs)
        self._ways: tuple[str, ...] = engine.host.state_ways
        # Each Python env is asked when it is saved.
        kind = "methods" if self._ways[0] == "methods" else self.kind
        self._why_not = kind.partition(": ")[2] if kind.startswith("none") else None
        limits = engine.host.episode_limits or [spec.max_episode_steps] * self._num_envs
        known: dict[tuple[int, int | None], StateOrigin] = {}  # thousands of envs usually share one configuration
        keys = list(zip(map(id, spec.env_configs), limits, strict=True))
        for env_id, (config, key) in enumerate(zip(spec.env_configs, keys, strict=True)):
            if key not in known:
                simulator = engine.host.fingerprint(env_id) if kind == "simulator" else ""
                told = configuration_text(config), limits[env_id], simulator
                known[key] = StateOrigin(spec.id, self._ways[0], *told)
        origins = tuple(known[key] for key in keys)
        self._origins = origins[:1] if len(set(known.values())) == 1 else origins

    @property
    def kind(self) -> str:
        """See ``PoolView.state_kind``."""
        kind: str = self._engine.use(getattr, self._engine.host, "state_kind")
        return kind

    def save(self, env_ids: Any, by: str | None = None) -> SavedStates:
        """The states of some envs; None: of all. ``by``: the way to save them, if it is not the usual one."""
        self._check_kind("save")
        if by is not None and by not in self._ways:
            ways = " or ".join(map(repr, self._ways))
            hint = "; it needs backend='process' and num_workers=num_envs" if by == "fork" else ""
            raise UnsupportedError(f"save: by: expected {ways}, the ways to save these envs, got {by!r}{hint}")
        buffer, bounds, kept = _native.EngineStates(self._engine).save(env_ids, by)
        origins = self._origins_of(env_ids, by)
        keepers: tuple[object, ...] = ()
        if kept is not None:  # some of them are elsewhere
            keepers = tuple(getattr(one, "keeper", None) for one in kept)
            origins = _of_kinds(origins, [getattr(one, "kind", None) for one in kept])
        return SavedStates(origins, buffer, bounds, keepers)

    def restoring(self, given: Any, env_ids: Any) -> tuple[Any, tuple[Any, ...]]:
        """The function that restores, and its arguments: nothing is to happen between it and the caller."""
        self._check_kind("restore")
        count = self._num_envs if env_ids is None else _count_of(env_ids)
        if isinstance(given, SavedState):
            given = given.repeated(count)
        states = _read_states(given, count)
        self._check_origins(states.origins, env_ids, count)
        buffer, bounds = states.parts
        return _native.EngineStates(self._engine).restore, (buffer, bounds, env_ids, states)

    def _check_kind(self, what: str) -> None:
        if self._why_not is not None:
            raise UnsupportedError(f"{what}: {self._why_not}")

    def _origins_of(self, env_ids: Any, way: str | None = None) -> tuple[StateOrigin, ...]:
        origins = self._origins
        if env_ids is not None and len(origins) > 1:
            try:
                origins = tuple(origins[env_id] for env_id in env_ids)
            except (IndexError, TypeError):
                raise EnvIdError(f"env_ids: expected ids in range [0, {self._num_envs}), got {env_ids!r}") from None
        return origins if way in (None, self._ways[0]) else tuple(replace(one, kind=way) for one in origins)

    def _check_origins(self, origins: tuple[StateOrigin, ...], env_ids: Any, count: int) -> None:
        targets = self._origins_of(env_ids)
        if origins == targets:
            return
        for i in range(count):
            mine = origins[0] if len(origins) == 1 else origins[i]
            target = targets[0] if len(targets) == 1 else targets[i]
            if mine.kind in self._ways:
                target = replace(target, kind=mine.kind)
            if mine != target:
                mine.refuse(target, i if env_ids is None else int(env_ids[i]))


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
            f"restore: expected {count} states, one per env, got {len(given)}; one state, as in states[0], is for all"
        )
    return given
