"""States of envs that were saved: what they are of, and the bytes."""

from __future__ import annotations

import operator
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from types import FunctionType
from typing import Any, NoReturn, Protocol, overload

import numpy as np

from stepmill._version import __version__
from stepmill.errors import StateError
from stepmill.values.spaces import FlatSpace

FORMAT = 1  # of what a pickled state consists of


@dataclass(frozen=True)
class StateOrigin:
    """What a state is of. Only an env of which the same is true can take it."""

    env: str
    kind: str  # how it was saved: see ``pool.state_kind``
    configuration: str
    max_episode_steps: int | None
    simulator: str = ""  # its version, and which model
    observation_space: str = ""  # of Python envs: a factory may be given arguments that nobody else knows of
    action_space: str = ""
    code: str = ""  # of native envs that are not a part of stepmill: the memory of others has another layout
    stepmill: str = __version__

    def refuse(self, call: str, target: StateOrigin, env_id: int) -> NoReturn:
        """Says why an env of another origin cannot take it. ``call``: what the user called."""
        for field in fields(self):
            mine, its = getattr(self, field.name), getattr(target, field.name)
            if mine != its:
                others = {"stepmill": "another version of stepmill", "code": "other code"}
                raise StateError(
                    f"{call}: env {env_id} cannot take a state of {others.get(field.name, f'another {field.name}')}: "
                    f"it was saved with {mine!r}, and the env has {its!r}"
                )
        raise AssertionError("these are equal")


def configuration_text(config: Mapping[str, Any]) -> str:
    """A configuration as a text that is the same in every process. How envs are drawn is left out."""
    return ", ".join(f"{key}={_text(value)}" for key, value in sorted(config.items()) if key != "render_mode")


def space_text(space: FlatSpace) -> str:
    """What a space consists of, as a text that is the same in every process."""
    parts = [f"{one.name} {one.dtype}{one.shape} in [{min(one.low):g}, {max(one.high):g}]" for one in space.leaves]
    parts += [type(one).__name__ for one in space.object_spaces]
    return ", ".join(map(str.strip, parts))


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.dtype != object:  # its repr leaves numbers out
        return f"{value.dtype}{value.shape}:{zlib.crc32(np.ascontiguousarray(value).tobytes()):08x}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_text(one)}' for key, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    if isinstance(value, set | frozenset):  # the order of texts in it is another one in every process
        return f"{{{', '.join(sorted(map(_text, value)))}}}"
    if isinstance(value, FunctionType):  # many have the same name: lambdas
        code = value.__code__
        parts = code.co_code, code.co_names, _text(code.co_consts), _text(value.__defaults__ or ())
        return f"{value.__module__}.{value.__qualname__}:{zlib.crc32(repr(parts).encode()):08x}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))  # where an object is means nothing elsewhere


class Buffer(Protocol):
    """Bytes, or what fetches them when somebody asks for them."""

    def __getitem__(self, part: slice, /) -> bytes: ...


class StateTicket(bytes):
    """A state that is elsewhere, and these bytes only say where.

    Attributes:
        kind: How it was saved.
        keeper: The state is there as long as this object.
    """

    def __new__(cls, content: bytes, kind: str, keeper: object) -> StateTicket:
        ticket = super().__new__(cls, content)
        ticket.kind, ticket.keeper = kind, keeper
        return ticket

    kind: str
    keeper: object


class SavedState:
    """The state of one env, as ``pool.save`` has found it; ``pool.restore`` gives it to envs.

    It cannot be changed. It can be pickled: a pickle holds this state alone, with a checksum. Like every pickle it may
    run code when it is read, and like one it should only be taken from those whom you trust.
    """

    __slots__ = ("_buffer", "_first", "_keeper", "_last", "_origin")

    def __init__(self, origin: StateOrigin, buffer: Buffer, first: int, last: int, keeper: object = None) -> None:
        self._origin, self._buffer, self._first, self._last, self._keeper = origin, buffer, first, last, keeper

    @property
    def origin(self) -> StateOrigin:
        """What it is of."""
        return self._origin

    @property
    def keeper(self) -> object:
        """What keeps it, if it is elsewhere; see ``StateTicket``."""
        return self._keeper

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self._last - self._first

    def repeated(self, count: int) -> SavedStates:
        """The same state several times."""
        bounds = np.empty((count, 2), np.int64)
        bounds[:] = self._first, self._last
        return SavedStates((self._origin,), self._buffer, bounds, (self._keeper,) * count)

    def __bytes__(self) -> bytes:
        return self._buffer[self._first : self._last]

    def __repr__(self) -> str:
        return f"SavedState({self.origin.env}, {self.nbytes} bytes)"

    def __copy__(self) -> SavedState:
        return self  # it cannot be changed

    def __deepcopy__(self, memo: Any) -> SavedState:
        return self  # and a copy by way of a pickle would not keep a state by fork

    def __reduce__(self) -> Any:
        function, arguments = self.repeated(1).__reduce__()
        return function, (*arguments, True)


class SavedStates(Sequence[SavedState]):
    """The states of some envs, in one buffer. Indices, slices and loops give states that share it.

    It cannot be changed, and can be pickled: see ``SavedState``.
    """

    __slots__ = ("_bounds", "_buffer", "_keepers", "_origins")

    def __init__(
        self, origins: tuple[StateOrigin, ...], buffer: Buffer, bounds: np.ndarray, keepers: tuple[object, ...] = ()
    ) -> None:
        # One origin, if it is that of all; no keepers, if none has one.
        self._origins, self._buffer, self._bounds, self._keepers = origins, buffer, bounds, keepers
        bounds.setflags(write=False)

    @classmethod
    def of(cls, states: Sequence[SavedState]) -> SavedStates:
        """Some states together: in their buffer, if they share one, otherwise in a new one."""
        origins = [state._origin for state in states]
        if len(set(map(id, origins))) == 1 or len(set(origins)) == 1:  # hashing thousands takes longer
            origins = origins[:1]
        keepers = tuple(state._keeper for state in states)
        if len({id(state._buffer) for state in states}) == 1:
            bounds = np.array([[state._first for state in states], [state._last for state in states]], np.int64)
            return cls(tuple(origins), states[0]._buffer, bounds.T, keepers)
        pieces = [state._buffer[state._first : state._last] for state in states]
        return cls(tuple(origins), b"".join(pieces), _bounds_of([len(one) for one in pieces]), keepers)

    @property
    def origins(self) -> tuple[StateOrigin, ...]:
        """What they are of: one for all, or one per state."""
        return self._origins

    @property
    def parts(self) -> tuple[Buffer, np.ndarray]:
        """The buffer, and the first and the last byte of each state in it."""
        return self._buffer, self._bounds

    def with_notes(self, notes: Sequence[bytes]) -> SavedStates:
        """The same states, each with a note of whoever keeps the env behind it."""
        pieces = [bytes(one) + note + len(note).to_bytes(8, "little") for one, note in zip(self, notes, strict=True)]
        return SavedStates(self._origins, b"".join(pieces), _bounds_of([len(one) for one in pieces]), self._keepers)

    def split_notes(self) -> tuple[SavedStates, list[bytes]]:
        """What ``with_notes`` has put together."""
        bounds, notes = self._bounds.copy(), []
        for i, (first, last) in enumerate(self._bounds.tolist()):
            size = int.from_bytes(self._buffer[last - 8 : last], "little")
            end = last - 8 - size
            if end < first:
                raise StateError("a saved state that ends too soon")
            notes.append(self._buffer[end : last - 8])
            bounds[i, 1] = end
        return SavedStates(self._origins, self._buffer, bounds, self._keepers), notes

    @property
    def nbytes(self) -> int:
        """How many bytes they have together."""
        return int((self._bounds[:, 1] - self._bounds[:, 0]).sum())

    def __len__(self) -> int:
        return len(self._bounds)

    @overload
    def __getitem__(self, index: int) -> SavedState: ...
    @overload
    def __getitem__(self, index: slice) -> SavedStates: ...
    def __getitem__(self, index: int | slice) -> SavedState | SavedStates:
        origins, keepers = self._origins, self._keepers
        if isinstance(index, slice):
            origins = origins if len(origins) == 1 else origins[index]
            return SavedStates(origins, self._buffer, self._bounds[index], keepers[index])
        index = operator.index(index)  # numpy would also take lists and masks
        first, last = self._bounds[index].tolist()
        origin = origins[0] if len(origins) == 1 else origins[index]
        return SavedState(origin, self._buffer, first, last, keepers[index] if keepers else None)

    def __iter__(self) -> Iterator[SavedState]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        envs = ", ".join(sorted({origin.env for origin in self._origins}))
        return f"SavedStates({envs}, {len(self)} state{'' if len(self) == 1 else 's'}, {self.nbytes} bytes)"

    def __copy__(self) -> SavedStates:
        return self  # it cannot be changed

    def __deepcopy__(self, memo: Any) -> SavedStates:
        return self  # and a copy by way of a pickle would not keep a state by fork

    def __reduce__(self) -> Any:
        """Only the bytes of these states, though they may share a buffer with others."""
        pieces = [self._buffer[first:last] for first, last in self._bounds.tolist()]
        origins = [tuple(getattr(one, field.name) for field in fields(one)) for one in self._origins]
        sizes, buffer = [len(one) for one in pieces], b"".join(pieces)
        return _read, (FORMAT, origins, sizes, buffer, _checksum(origins, sizes, buffer))


def _bounds_of(sizes: Sequence[int]) -> np.ndarray:
    """The first and the last byte of each of some states that lie one after another."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return np.stack([ends - sizes, ends], axis=1)


def _checksum(origins: Any, sizes: list[int], buffer: bytes) -> int:
    return zlib.crc32(buffer, zlib.crc32(repr((origins, sizes)).encode()))


def _read(form: int, *parts: Any) -> SavedState | SavedStates:
    """What ``pickle`` calls."""
    if form != FORMAT:
        raise StateError(f"a saved state in format {form!r}: expected {FORMAT}, that of stepmill {__version__}")
    origins, sizes, buffer, checksum, *alone = parts
    if checksum != _checksum(origins, sizes, buffer) or sum(sizes) != len(buffer):
        raise StateError("a saved state that is damaged: its checksum is that of other bytes")
    states = SavedStates(tuple(StateOrigin(*one) for one in origins), buffer, _bounds_of(sizes))
    return states[0] if alone else states
