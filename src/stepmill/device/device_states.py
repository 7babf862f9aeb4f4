"""Saved states of envs on a device: rows of its arrays, which stay there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

import jax
import numpy as np

from stepmill.errors import InputError, StateError, UnsupportedError
from stepmill.values.saved_states import StateOrigin, configuration_text, space_text


class Rows(NamedTuple):
    """What decides how some envs go on, and what they showed last: a row per env in every array."""

    envs: Any
    shown: Any


@dataclass(frozen=True)
class DeviceState:
    """The state of one env. It can be pickled: then its arrays come to the host."""

    origin: StateOrigin
    rows: Rows  # one

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceState, (self.origin, jax.device_get(self.rows))


@dataclass(frozen=True)
class DeviceStates(Sequence[DeviceState]):
    """States of envs, as ``pool.save`` has found them. They cannot change, and can be pickled."""

    origin: StateOrigin
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows.envs.key)

    @overload
    def __getitem__(self, index: int) -> DeviceState: ...
    @overload
    def __getitem__(self, index: slice) -> DeviceStates: ...
    def __getitem__(self, index: int | slice) -> DeviceState | DeviceStates:
        places = range(len(self))[index]
        if isinstance(places, range):
            return DeviceStates(self.origin, _taken(self.rows, np.array(places, np.int32)))
        return DeviceState(self.origin, _taken(self.rows, np.array([places], np.int32)))

    def __iter__(self) -> Iterator[DeviceState]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"DeviceStates({len(self)} of {self.origin.env})"

    def __reduce__(self) -> tuple[Any, ...]:
        return DeviceStates, (self.origin, jax.device_get(self.rows))


class DeviceMemory(NamedTuple):
    """A whole pool, for a checkpoint: in numpy's arrays."""

    origin: StateOrigin
    now: Any
    standing: Any
    seconds: float  # how long the run has taken until then


class DeviceKeeper:
    """Saves and restores the envs of a ``DevicePool``: what ``StateKeeper`` is for an engine."""

    kind = "arrays"

    def __init__(
        self, pool: Any, name: str, configs: Sequence[Mapping[str, Any]], max_episode_steps: int | None
    ) -> None:
        self._pool = pool
        told = configuration_text(configs[0]), max_episode_steps, "", space_text(pool.observation)
        self._origin = StateOrigin(name, self.kind, *told, space_text(pool.action))

    def save(self, env_ids: Any, by: str | None = None) -> DeviceStates:
        """The states of some envs; None: of all."""
        _check_way("save", by)
        states: DeviceStates = self._pool.use(self._save, env_ids)
        return states

    def _save(self, env_ids: Any) -> DeviceStates:
        ids = self._pool.read_envs(env_ids)
        self._pool.refuse_unready("save", ids)
        program = self._pool.program
        all_ids = np.arange(self._pool.num_envs, dtype=np.int32)
        now = program.whole()
        return DeviceStates(self._origin, program.take(Rows(now.envs, now.shown), all_ids if ids is None else ids))

    def restoring(self, given: Any, env_ids: Any) -> tuple[Any, tuple[Any, ...]]:
        """The function that restores, and its arguments."""
        return self._pool.restore, (self._read, given, env_ids)

    def _read(self, given: Any, env_ids: Any) -> tuple[Rows, np.ndarray | None, None]:
        ids = self._pool.read_envs(env_ids)
        rows = self._rows_of(given, self._pool.num_envs if ids is None else len(ids))
        self._pool.refuse_unready("restore", ids)
        return rows, ids, None

    def _rows_of(self, given: Any, count: int) -> Rows:
        """One row per env, from what the user gave."""
        if isinstance(given, DeviceState):
            self._check(given.origin)
            return _repeated(given.rows, count)
        if isinstance(given, list | tuple) and given and all(isinstance(one, DeviceState) for one in given):
            for one in given:
                self._check(one.origin)
            joined = jax.tree.map(lambda *leaves: jax.numpy.concatenate(leaves), *(one.rows for one in given))
            given = DeviceStates(self._origin, joined)
        if not isinstance(given, DeviceStates):
            raise InputError(
                f"restore: expected what save() returned, a list of such states, or one of them, got "
                f"{type(given).__name__}"
            )
        self._check(given.origin)
        if len(given) != count:
            raise StateError(
                f"restore: expected {count} state{'' if count == 1 else 's'}, one per env, got {len(given)}; one "
                "state, as in states[0], is for all"
            )
        return given.rows

    def _check(self, origin: StateOrigin) -> None:
        if origin != self._origin:
            origin.refuse("restore", self._origin, 0)

    # ---- the whole pool ----------------------------------------------------------------------

    def save_all(self, by: str | None) -> DeviceMemory:
        """All that decides how the pool goes on."""
        _check_way("checkpoint", by)
        now, standing, seconds = self._pool.use(self._pool.memory)
        return DeviceMemory(self._origin, jax.device_get(now), standing, seconds)

    def restore_all(self, memory: DeviceMemory) -> None:
        """Makes a new pool what another one was."""
        if memory.origin != self._origin:
            memory.origin.refuse("resume", self._origin, 0)
        self._pool.set_memory(memory.now, memory.standing, memory.seconds)


def _taken(rows: Rows, places: np.ndarray) -> Rows:
    taken: Rows = jax.tree.map(lambda leaf: leaf[places], rows)
    return taken


def _repeated(rows: Rows, count: int) -> Rows:
    """One row so many times."""
    repeated: Rows = jax.tree.map(lambda leaf: jax.numpy.broadcast_to(leaf, (count, *leaf.shape[1:])), rows)
    return repeated


def _check_way(what: str, by: str | None) -> None:
    if by not in (None, DeviceKeeper.kind):
        raise UnsupportedError(f"{what}: by: expected 'arrays', the way to save these envs, got {by!r}")
