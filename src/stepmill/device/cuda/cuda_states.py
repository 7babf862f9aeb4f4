"""Saved states of envs on a GPU: copies that stay there, whose bytes come to the host when somebody asks for them.

There a state is the words of the env's memory, then ``_Rest``, then the content of the table that the env reads, if its
class has one: a table's address means nothing elsewhere.
"""

from __future__ import annotations

import functools
import os
from typing import Any, NamedTuple

import numpy as np

from stepmill import _native
from stepmill.errors import ForkedError, StateError
from stepmill.hosts.saving import StateKeeper
from stepmill.values.saved_states import Buffer, SavedStates, StateOrigin

# Of an env, beside its memory, in the order of the arrays that GpuStates.read() gives.
_COUNTS = ("seldom", "episode_return", "elapsed", "phase")
_Rest = np.dtype([("seldom", "V128"), ("episode_return", "<f8"), ("elapsed", "<i4"), ("phase", "<u4"), ("seed", "<u8")])
_Table = np.dtype([("size", "<u8")])  # of its content, which follows

Arrays = tuple[bytes, ...]


class StatesOnGpu:
    """The bytes of states, which are on the GPU.

    Args:
        program: What moves the envs.
        ids: Which envs; None: all.
        seeds: Of these.
    """

    def __init__(self, program: Any, ids: np.ndarray | None, seeds: np.ndarray) -> None:
        self.copies: _native.GpuStates = program.copies(ids)
        self.row_bytes = 8 * program.memory_words + _Rest.itemsize
        if program.table_word is not None:
            self.row_bytes += _Table.itemsize + program.longest_table
        self.seeds, self._stream, self._owner = seeds, program.stream, program.token
        self._table_word = program.table_word
        self._pid = os.getpid()

    def is_of(self, program: Any) -> bool:
        """Whether the copies are ones of its envs."""
        return self._owner is program.token

    def __getitem__(self, part: slice) -> bytes:
        return self._bytes[part]

    @functools.cached_property
    def _bytes(self) -> bytes:
        if os.getpid() != self._pid:
            raise ForkedError("these states are on a GPU, which a forked child cannot use: pickle them before the fork")
        words, rest = _rows(self.copies.read(self._stream()), len(self.seeds))
        rest["seed"] = self.seeds
        parts = [words, rest] if self._table_word is None else [words, rest, self._tables(words)]
        rows = [np.ascontiguousarray(one).view(np.uint8).reshape(len(words), -1) for one in parts]
        return np.concatenate(rows, 1).tobytes()

    def _tables(self, words: np.ndarray) -> np.ndarray:
        """What the envs read, each in a row that is long enough for the longest of the pool."""
        addresses, which = np.unique(words[:, self._table_word], return_inverse=True)
        rows = np.zeros((len(addresses), self.row_bytes - 8 * words.shape[1] - _Rest.itemsize), np.uint8)
        for row, address in zip(rows, addresses.tolist(), strict=True):
            content = self.copies.table(address, self._stream()) or b""
            told = np.array(len(content), "<u8").tobytes() + content
            row[: len(told)] = np.frombuffer(told, np.uint8)
        return rows[which]


class CudaMemory(NamedTuple):
    """A whole pool, for a checkpoint."""

    origins: tuple[StateOrigin, ...]
    states: SavedStates
    standing: Any
    rows: bytes | None  # of envs that nobody has received
    past: tuple[int, int | None, int | None, int]  # what was counted and noted until then
    seconds: float  # how long the run has taken until then


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
        seeds = self._pool.known_seeds
        held = StatesOnGpu(self._pool.program, ids, seeds.copy() if ids is None else seeds[ids])
        bounds = held.row_bytes * (np.arange(len(held.seeds), dtype=np.int64)[:, None] + [0, 1])
        return SavedStates(self._origins_of(ids), held, bounds)

    # ---- restoring ---------------------------------------------------------------------------

    def restoring(self, given: Any, env_ids: Any) -> tuple[Any, tuple[Any, ...]]:
        """The function that restores, and its arguments."""
        return self._pool.restore, (self._read, given, env_ids)

    def _read(
        self, given: Any, env_ids: Any
    ) -> tuple[tuple[_native.GpuStates, np.ndarray | None], np.ndarray | None, np.ndarray]:
        """Copies on the GPU and which of them is whose, whose those are, and the seeds that all envs have then."""
        states = self.checked(given, env_ids)
        ids = self._pool.read_envs(env_ids)
        self._pool.refuse_unready("restore", ids)
        program = self._pool.program
        buffer, bounds = states.parts
        places = None
        if isinstance(buffer, StatesOnGpu) and buffer.is_of(program):
            places = (bounds[:, 0] // buffer.row_bytes).astype(np.int32)
            copies, its_seeds = buffer.copies, buffer.seeds[places]
        else:
            words, rest = self._unpacked(buffer, bounds)
            copies, its_seeds = program.copies_of(_arrays(words, rest)), rest["seed"]
        seeds = self._pool.known_seeds.copy()
        seeds[slice(None) if ids is None else ids] = its_seeds
        return (copies, places), ids, seeds

    def _unpacked(self, given: Buffer, bounds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows of words and of the rest, in which tables are where they are here."""
        count, buffer = self._pool.program.memory_words, given[:]
        size = 8 * count + _Rest.itemsize
        first, sizes = bounds[:, 0], bounds[:, 1] - bounds[:, 0]
        word = self._pool.program.table_word
        if (sizes < size).any() or (word is None and (sizes != size).any()):
            raise StateError(f"restore: a saved state that is damaged: expected {size} bytes, got {sizes.tolist()}")
        all_bytes = np.frombuffer(buffer, np.uint8)
        if len(first) and (np.diff(first) == sizes[:-1]).all() and (sizes == sizes[0]).all():  # row after row
            records = all_bytes[first[0] : bounds[-1, 1]].reshape(len(first), -1)[:, :size]
        else:
            records = np.stack([all_bytes[one : one + size] for one in first.tolist()])
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
        standing = self._pool.standing
        rows = None if standing.in_flight is None else self._pool.program.in_flight_rows()
        past = self._pool.program.past()
        return CudaMemory(self._origins, self._states(None), standing, rows, past, self._pool.seconds)

    def restore_all(self, memory: Any) -> None:
        """Makes a new pool what another one was."""
        self._check_origins("resume", memory.origins, None, self._num_envs)
        state = _arrays(*self._unpacked(*memory.states.parts))
        self._pool.set_memory((state, memory.rows, memory.past), memory.standing, memory.seconds)


def _rows(state: Arrays, count: int) -> tuple[np.ndarray, np.ndarray]:
    """A row of words per env, and of the rest without seeds. Word w of env i is at w * count + i."""
    memory, *others = state
    rest = np.zeros(count, _Rest)
    for name, array in zip(_COUNTS, others, strict=True):
        rest[name] = np.frombuffer(array, _Rest[name])
    return np.frombuffer(memory, np.uint64).reshape(-1, count).T.copy(), rest


def _arrays(words: np.ndarray, rest: np.ndarray) -> Arrays:
    return words.T.tobytes(), *(rest[name].tobytes() for name in _COUNTS)
