"""Saved states of envs on a GPU: what of their arrays is theirs, on the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from stepmill.errors import InputError, StateError, UnsupportedError
from stepmill.values.saved_states import StateOrigin, configuration_text, space_text

# The types of the arrays that GpuEnvs.read() gives. The first is word by word: word w of env i is at w * num_envs + i.
_TYPES = tuple(map(np.dtype, ("uint64", "V64", "float64", "int32", "uint32")))


@dataclass(frozen=True)
class CudaStates(Sequence["CudaStates"]):
    """States of envs, as ``pool.save`` has found them. They cannot change, and can be pickled."""

    origin: StateOrigin
    rows: tuple[np.ndarray, ...]  # of each array, a row per env

    def __len__(self) -> int:
        return len(self.rows[1])

    @overload
    def __getitem__(self, index: int) -> CudaStates: ...
    @overload
    def __getitem__(self, index: slice) -> CudaStates: ...
    def __getitem__(self, index: int | slice) -> CudaStates:
        places = range(len(self))[index]
        chosen = list(places) if isinstance(places, range) else [places]
        return CudaStates(self.origin, tuple(rows[chosen] for rows in self.rows))

    def __iter__(self) -> Iterator[CudaStates]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"CudaStates({len(self)} of {self.origin.env})"


class CudaKeeper:
    """Saves and restores the envs of a pool on a GPU: what ``StateKeeper`` is for an engine."""

    kind = "arrays"

    def __init__(
        self, pool: Any, name: str, configs: Sequence[Mapping[str, Any]], max_episode_steps: int | None
    ) -> None:
        self._pool = pool
        told = configuration_text(configs[0]), max_episode_steps, "", space_text(pool.observation)
        self._origin = StateOrigin(name, self.kind, *told, space_text(pool.action))

    def save(self, env_ids: Any, by: str | None = None) -> CudaStates:
        """The states of some envs; None: of all. Waits for the GPU."""
        _check_way("save", by)
        states: CudaStates = self._pool.use(self._save, env_ids)
        return states

    def _save(self, env_ids: Any) -> CudaStates:
        ids = self._pool.read_envs(env_ids)
        self._pool.refuse_unready("save", ids)
        rows = _rows(self._pool.program.whole(), self._pool.num_envs)
        return CudaStates(self._origin, rows if ids is None else tuple(one[ids] for one in rows))

    def restoring(self, given: Any, env_ids: Any) -> tuple[Any, tuple[Any, ...]]:
        """The function that restores, and its arguments."""
        return self._pool.restore, (self._read, given, env_ids)

    def _read(self, given: Any, env_ids: Any) -> tuple[tuple[Any, ...], np.ndarray | None]:
        ids = self._pool.read_envs(env_ids)
        count = self._pool.num_envs if ids is None else len(ids)
        states = self._checked(given, count)
        self._pool.refuse_unready("restore", ids)
        now = [one.copy() for one in _rows(self._pool.program.whole(), self._pool.num_envs)]
        for to, rows in zip(now, states.rows, strict=True):
            to[slice(None) if ids is None else ids] = rows
        return (_arrays(now),), ids

    def _checked(self, given: Any, count: int) -> CudaStates:
        """A state for each env, from what the user gave."""
        if isinstance(given, list | tuple) and given and all(isinstance(one, CudaStates) for one in given):
            for one in given:
                self._check(one.origin)
            given = CudaStates(self._origin, tuple(map(np.concatenate, zip(*(one.rows for one in given), strict=True))))
        if not isinstance(given, CudaStates):
            raise InputError(
                f"restore: expected what save() returned, a list of such states, or one of them, got "
                f"{type(given).__name__}"
            )
        self._check(given.origin)
        if len(given) == 1:
            return CudaStates(self._origin, tuple(np.repeat(one, count, 0) for one in given.rows))
        if len(given) != count:
            raise StateError(
                f"restore: expected {count} state{'' if count == 1 else 's'}, one per env, got {len(given)}; one "
                "state, as in states[0], is for all"
            )
        return given

    def _check(self, origin: StateOrigin) -> None:
        if origin != self._origin:
            origin.refuse("restore", self._origin, 0)

    # ---- the whole pool ----------------------------------------------------------------------

    def save_all(self, by: str | None) -> Any:
        """All that decides how the pool goes on."""
        _check_way("checkpoint", by)
        return self._origin, *self._pool.use(self._pool.memory)

    def restore_all(self, memory: Any) -> None:
        """Makes a new pool what another one was."""
        origin, now, standing = memory
        if origin != self._origin:
            origin.refuse("resume", self._origin, 0)
        self._pool.set_memory(now, standing)


def _rows(state: tuple[bytes, ...], count: int) -> tuple[np.ndarray, ...]:
    """The arrays of all envs, a row per env."""
    memory, *others = (np.frombuffer(one, dtype) for one, dtype in zip(state, _TYPES, strict=True))
    return memory.reshape(-1, count).T, *others


def _arrays(rows: Sequence[np.ndarray]) -> tuple[bytes, ...]:
    return rows[0].T.tobytes(), *(one.tobytes() for one in rows[1:])


def _check_way(what: str, by: str | None) -> None:
    if by not in (None, CudaKeeper.kind):
        raise UnsupportedError(f"{what}: by: expected 'arrays', the way to save these envs, got {by!r}")
