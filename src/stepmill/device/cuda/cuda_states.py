"""Saved states of envs on a GPU: what of its arrays is theirs, and what they read, on the host.

A state is the words of the env's memory, then ``_Rest``, then the content of the table that the env reads, if its class
has one: a table's address means nothing elsewhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stepmill.errors import StateError
from stepmill.hosts.saving import StateKeeper
from stepmill.values.saved_states import SavedStates, StateOrigin

# Of an env, beside its memory, in the order of the arrays that GpuEnvs.read() gives.
_COUNTS = ("seldom", "episode_return", "elapsed", "phase")
_Rest = np.dtype([("seldom", "V64"), ("episode_return", "<f8"), ("elapsed", "<i4"), ("phase", "<u4"), ("seed", "<u8")])
_Table = np.dtype([("size", "<u8")])  # of its content, which follows

Arrays = tuple[bytes, ...]


class CudaMemory(NamedTuple):
    """A whole pool, for a checkpoint."""

    origins: tuple[StateOrigin, ...]
    states: SavedStates
    standing: Any
    rows: bytes | None  # of envs that nobody has received


class CudaKeeper(StateKeeper):
    """Saves and restores the envs of a pool on a GPU.

    Args:
        pool: The pool: a ``DevicePool``.
        *told: What ``StateKeeper`` is told besides.
    """

    def __init__(self, pool: Any, *told: Any) -> None:
        super().__init__(pool, *told)
        self._pool = pool
        self._placed: dict[bytes, int] = {}  # where tables are that came with states

    def save(self, env_ids: Any, by: str | None = None) -> SavedStates:
        """The states of some envs; None: of all. Waits for the GPU."""
        self._check_kind("save", by)
        states: SavedStates = self._pool.use(self._save, env_ids)
        return states

    def _save(self, env_ids: Any) -> SavedStates:
        ids = self._pool.read_envs(env_ids)
        self._pool.refuse_unready("save", ids)
        return self._states(ids)

    def _states(self, ids: np.ndarray | None) -> SavedStates:
        program, count = self._pool.program, self._pool.num_envs
        words, rest = _rows(program.whole(), count)
        rest["seed"] = self._pool.known_seeds
        if ids is not None:
            words, rest = words[ids], rest[ids]
        parts = [words, rest] if program.table_word is None else [words, rest, self._tables(words)]
        records = np.concatenate([np.ascontiguousarray(one).view(np.uint8).reshape(len(words), -1) for one in parts], 1)
        size = records.shape[1]
        bounds = size * np.arange(len(words), dtype=np.int64)[:, None] + [0, size]
        return SavedStates(self._origins_of(ids), records.tobytes(), bounds)

    def _tables(self, words: np.ndarray) -> np.ndarray:
        """What the envs read, in rows that are as long as the longest needs."""
        program = self._pool.program
        addresses, which = np.unique(words[:, program.table_word], return_inverse=True)
        contents = [program.table(int(one)) for one in addresses]
        rows = np.zeros((len(contents), _Table.itemsize + max(map(len, contents))), np.uint8)
        for row, content in zip(rows, contents, strict=True):
            row[: _Table.itemsize] = np.array(len(content), "<u8").reshape(1).view(np.uint8)
            row[_Table.itemsize : _Table.itemsize + len(content)] = np.frombuffer(content, np.uint8)
        return rows[which]

    # ---- restoring ---------------------------------------------------------------------------

    def restoring(self, given: Any, env_ids: Any) -> tuple[Any, tuple[Any, ...]]:
        """The function that restores, and its arguments."""
        return self._pool.restore, (self._read, given, env_ids)

    def _read(self, given: Any, env_ids: Any) -> tuple[tuple[Arrays], np.ndarray | None, np.ndarray]:
        """The arrays of all envs with the states in them, whose those are, and the seeds of all."""
        states = self.checked(given, env_ids)
        ids = self._pool.read_envs(env_ids)
        self._pool.refuse_unready("restore", ids)
        words, rest = _rows(self._pool.program.whole(), self._pool.num_envs)
        rest["seed"] = self._pool.known_seeds
        of = slice(None) if ids is None else ids
        words[of], rest[of] = self._unpacked(states, words.shape[1])
        return (_arrays(words, rest),), ids, rest["seed"].copy()

    def _unpacked(self, states: SavedStates, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of words and of the rest, in which tables are where they are here."""
        size, buffer, bounds = 8 * count + _Rest.itemsize, *states.parts
        first, sizes = bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        word = self._pool.program.table_word
        if (sizes < size).any() or (word is None and (sizes != size).any()):
            raise StateError(f"restore: a saved state that is damaged: expected {size} bytes, got {sizes.tolist()}")
        records = np.frombuffer(buffer, np.uint8)[first[:, None] + np.arange(size)]
        words = np.ascontiguousarray(records[:, : 8 * count]).view(np.uint64)
        rest = np.ascontiguousarray(records[:, 8 * count :]).view(_Rest).reshape(-1)
        if word is not None:
            known: dict[bytes, int] = {}
            for row, (start, end) in enumerate(bounds.tolist()):
                table = buffer[start + size : end]
                if table not in known:
                    known[table] = self._place(int(words[row, word]), table)
                words[row, word] = known[table]
        return words, rest

    def _place(self, address: int, table: bytes) -> int:
        """Where a table of a state is on this GPU."""
        told = int.from_bytes(table[: _Table.itemsize], "little")
        content = table[_Table.itemsize : _Table.itemsize + told]
        if len(content) != told or not told:
            raise StateError("restore: a saved state that ends too soon")
        program = self._pool.program
        if program.table(address) == content:  # it was saved here
            return address
        if content not in self._placed:
            self._placed[content] = program.keep_table(content)
        return self._placed[content]

    # ---- the whole pool ----------------------------------------------------------------------

    def save_all(self, by: str | None) -> Any:
        """All that decides how the pool goes on."""
        self._check_kind("checkpoint", by)
        return self._pool.use(self._save_all)

    def _save_all(self) -> CudaMemory:
        _, standing = self._pool.memory()
        rows = None if standing.in_flight is None else self._pool.program.in_flight_rows()
        return CudaMemory(self._origins, self._states(None), standing, rows)

    def restore_all(self, memory: Any) -> None:
        """Makes a new pool what another one was."""
        self._check_origins("resume", memory.origins, None, self._num_envs)
        words, _ = _rows(self._pool.program.whole(), self._pool.num_envs)
        state = _arrays(*self._unpacked(memory.states, words.shape[1]))
        self._pool.set_memory((state, memory.rows), memory.standing)


def _rows(state: Arrays, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A row of words per env, and of the rest without seeds. Word w of env i is at w * count + i."""
    memory, *others = state
    rest = np.zeros(count, _Rest)
    for name, array in zip(_COUNTS, others, strict=True):
        rest[name] = np.frombuffer(array, _Rest[name])
    return np.frombuffer(memory, np.uint64).reshape(-1, count).T.copy(), rest


def _arrays(words: np.ndarray, rest: np.ndarray) -> Arrays:
    return words.T.tobytes(), *(rest[name].tobytes() for name in _COUNTS)
