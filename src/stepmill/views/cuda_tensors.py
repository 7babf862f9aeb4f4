"""Batches as tensors on a GPU: ``output="torch", device="cuda"``.

A stream of our own copies them, so the program does not wait for a copy, and envs step meanwhile. The stream that is
current when a batch is received waits for its copy, as for everything else that it computes with.

A copy reads the memory of the batch after ``convert`` has returned. So the arrays are held here until the copy's event
is done. The pool locks that memory (cpp/core/page_lock.h): a device can read no other by itself.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

__all__ = ["CudaTensors"]

# Smaller arrays are copied on the CPU first, next to each other, so that one copy to the GPU takes them all: each costs
# the program some microseconds, as many as it takes to move so many bytes here.
_LARGE = 32 * 1024
_ALIGNMENT = 16  # of the arrays that are next to each other; enough for every type
# A program that never looks at its tensors could otherwise be ahead of the copies without bound.
_MOST_AHEAD = 64


class CudaTensors:
    """Makes tensors on one GPU from the arrays of batches."""

    def __init__(self, library: ModuleType, gpu: int) -> None:
        self._torch = library
        self._device = library.device("cuda", gpu)
        self._stream = library.cuda.Stream(self._device)
        self._types: dict[np.dtype, Any] = {}
        self._copies: deque[_Copy] = deque()  # the oldest first
        weakref.finalize(self, _wait_for_all, self._stream, self._copies)

    def convert(self, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
        """The same numbers in new memory of the GPU. The arrays must not change any more."""
        self._let_go()
        # Noted before the copy begins: if a signal handler raises in between, nothing is released too early.
        copy = _Copy(arrays)
        self._copies.append(copy)
        cuda = self._torch.cuda
        current = cuda.current_stream(self._device)
        with cuda.stream(self._stream):  # memory for the tensors comes from here too, so it is free for this stream
            tensors, memory = self._start(arrays)
            event = cuda.Event()
            event.record(self._stream)
        copy.event = event
        current.wait_event(event)
        for one in memory:
            one.record_stream(current)  # not given away again before that stream has done with it
        return tensors

    def _start(self, arrays: Sequence[np.ndarray]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Starts the copies. Returns the tensors, and those that own their memory."""
        tensors: list[Any] = [None] * len(arrays)
        owners = []
        small = [i for i, array in enumerate(arrays) if array.nbytes < _LARGE]
        if small:
            packed, parts = self._pack([arrays[i] for i in small])
            owners.append(packed)
            for i, part in zip(small, parts, strict=True):
                tensors[i] = part
        for i, array in enumerate(arrays):
            if tensors[i] is None:
                tensors[i] = self._torch.empty(array.shape, dtype=self._type(array.dtype), device=self._device)
                tensors[i].copy_(self._torch.from_numpy(array), non_blocking=True)
                owners.append(tensors[i])
        return tensors, owners

    def _pack(self, arrays: Sequence[np.ndarray]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Copies small arrays together. Returns the memory that they share, and the tensors."""
        starts, size = [], 0
        for array in arrays:
            starts.append(size)
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        # torch does not use it again before the copy from it is done.
        staging = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True)
        room = staging.numpy()
        for array, start in zip(arrays, starts, strict=True):
            room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array
        packed = self._torch.empty(size, dtype=self._torch.uint8, device=self._device)
        packed.copy_(staging, non_blocking=True)
        parts = [
            packed[start : start + array.nbytes].view(self._type(array.dtype)).view(array.shape)
            for array, start in zip(arrays, starts, strict=True)
        ]
        return packed, parts

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
            copies.popleft()


class _Copy:
    """A copy under way, and the memory that it reads."""

    __slots__ = ("arrays", "event")

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = arrays
        self.event: Any = None  # torch's; None: the copy has not begun, or was interrupted


def _wait_for_all(stream: Any, copies: deque[_Copy]) -> None:
    """At the end of a pool, or of the program."""
    if copies:
        stream.synchronize()
        copies.clear()
