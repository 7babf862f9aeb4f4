"""Batches as tensors on a GPU: ``output="torch", device="cuda"``.

A stream of our own copies them, so the program does not wait for a copy, and envs step meanwhile. The stream that is
current when a batch is received waits for its copy, as for everything else that it computes with.

A copy reads the memory of the batch after ``convert`` has returned. So the arrays are held here until the copy's event
is done. The pool locks that memory (cpp/core/memory/page_lock.h): a device can read no other by itself.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

# Smaller arrays are copied on the CPU first, next to each other, so that one copy to the GPU takes them all: each costs
# the program some microseconds, about as many as it takes to move this number of bytes here.
_LARGE = 32 * 1024
_ALIGNMENT = 16  # of the arrays that are next to each other; enough for every type
# A program that never looks at its tensors could otherwise be ahead of the copies without bound.
_MOST_AHEAD = 64


class CudaTensors:
    """Makes tensors on one GPU from the arrays of batches.

    A loop over small steps pays for every call of torch here, several microseconds each: so there are few.
    """

    def __init__(self, library: ModuleType, gpu: int) -> None:
        self._torch = library
        self._gpu = gpu
        self._device = library.device("cuda", gpu)
        self._stream = library.cuda.Stream(self._device)
        self._types: dict[np.dtype, Any] = {}
        self._copies: deque[_Copy] = deque()  # the oldest first
        self._shapes: list[tuple[np.dtype, tuple[int, ...]]] = []  # of the small arrays of the last batch
        self._staging: list[_Staging] = []  # for arrays of these shapes, and read by no copy
        weakref.finalize(self, _wait_for_all, self._stream, self._copies)

    def convert(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The same numbers in new memory of the GPU. The arrays must not change any more."""
        self._let_go()
        # Noted before the copy begins: if a signal handler raises in between, nothing is released too early.
        copy = _Copy(arrays)
        self._copies.append(copy)
        cuda = self._torch.cuda
        if cuda.current_device() != self._gpu:
            with cuda.device(self._device):
                return self._convert(copy, cuda)
        return self._convert(copy, cuda)

    def _convert(self, copy: _Copy, cuda: ModuleType) -> list[torch.Tensor]:
        current = cuda.current_stream(self._gpu)
        event = cuda.Event()
        try:
            cuda.set_stream(self._stream)  # memory for the tensors comes from here too, so it is free for this stream
            tensors, memory = self._start(copy)
            event.record(self._stream)
        finally:
            cuda.set_stream(current)
        copy.event = event
        current.wait_event(event)
        for one in memory:
            one.record_stream(current)  # not given away again before that stream has done with it
        return tensors

    def _start(self, copy: _Copy) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Starts the copies. Returns the tensors, and those that own their memory."""
        empty, device = self._torch.empty, self._device
        tensors: list[Any] = []
        owners = []
        small = []
        for array in copy.arrays:
            if array.nbytes < _LARGE:
                small.append(array)
                tensors.append(None)
                continue
            tensor = empty(array.shape, dtype=self._type(array.dtype), device=device)
            tensor.copy_(self._torch.from_numpy(array), non_blocking=True)
            tensors.append(tensor)
            owners.append(tensor)
        if small:
            copy.staging = staging = self._staging_for(small)
            for room, array in zip(staging.rooms, small, strict=True):
                room[...] = array
            packed = empty(staging.size, dtype=self._torch.uint8, device=device)
            packed.copy_(staging.memory, non_blocking=True)
            owners.append(packed)
            parts = staging.views_of(packed)
            tensors = [next(parts) if tensor is None else tensor for tensor in tensors]
        return tensors, owners

    def _staging_for(self, arrays: Sequence[np.ndarray]) -> _Staging:
        shapes = [(array.dtype, array.shape) for array in arrays]
        if shapes != self._shapes:
            self._shapes = shapes
            self._staging = []
        if self._staging:
            return self._staging.pop()
        return _Staging(self._torch, self._shapes, [self._type(dtype) for dtype, _ in shapes])

    def _type(self, dtype: np.dtype) -> Any:
        found = self._types.get(dtype)
        if found is None:
            found = self._types[dtype] = self._torch.from_numpy(np.empty(0, dtype)).dtype
        return found

    def _let_go(self) -> None:
        """Drops the arrays of copies that are done. Where the copies are far behind, waits for the oldest."""
        copies = self._copies
        while copies:
            event = copies[0].event
            if event is None:  # interrupted: nobody knows how far it came
                self._stream.synchronize()
            elif len(copies) >= _MOST_AHEAD:
                event.synchronize()
            elif not event.query():
                return
            staging = copies.popleft().staging
            if staging is not None and staging.shapes is self._shapes:
                self._staging.append(staging)


class _Staging:
    """Locked memory in which small arrays of some shapes stand next to each other."""

    def __init__(self, library: ModuleType, shapes: list[tuple[np.dtype, tuple[int, ...]]], types: list[Any]) -> None:
        self.shapes = shapes
        sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in shapes]
        starts = [0, *itertools.accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]
        self.size = starts.pop()
        self.memory = library.empty(self.size, dtype=library.uint8, pin_memory=True)
        bytes_ = self.memory.numpy()
        self.rooms = [
            bytes_[start : start + size].view(dtype).reshape(shape)
            for start, size, (dtype, shape) in zip(starts, sizes, shapes, strict=True)
        ]
        self._views = [
            (type_, shape, [step // dtype.itemsize for step in room.strides], start // dtype.itemsize)
            for type_, (dtype, shape), room, start in zip(types, shapes, self.rooms, starts, strict=True)
        ]

    def views_of(self, packed: torch.Tensor) -> Iterator[torch.Tensor]:
        """Tensors over a copy of this memory."""
        typed: dict[Any, torch.Tensor] = {}
        for type_, shape, strides, start in self._views:
            if type_ not in typed:
                typed[type_] = packed.view(type_)
            yield typed[type_].as_strided(shape, strides, start)


class _Copy:
    """A copy under way, and the memory that it reads."""

    __slots__ = ("arrays", "event", "staging")

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = arrays
        self.staging: _Staging | None = None
        self.event: Any = None  # torch's; None: the copy has not begun, or was interrupted


def _wait_for_all(stream: Any, copies: deque[_Copy]) -> None:
    """Ends all copies, at the end of a pool or of the program."""
    if copies:
        stream.synchronize()
        copies.clear()
