"""A torch with a GPU that is not one: its memory is the CPU's, and its streams do nothing before they are told to.

So a test decides when a copy happens: much later than on a real GPU, which shows what was released too early.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

GARBAGE = 0xAB


class OnGpu(torch.Tensor):
    """Memory of the GPU. It is written to when its stream comes to that."""

    gpu: FakeGpu

    def copy_(self, source: Any, non_blocking: bool = False) -> OnGpu:
        assert non_blocking
        assert not isinstance(source, OnGpu)
        here = self.as_subclass(torch.Tensor)
        self.gpu.current.add(lambda: here.copy_(source))
        return self

    def record_stream(self, stream: Any) -> None:
        self.gpu.recorded.append((self.data_ptr(), stream))


class FakeStream:
    """Work to be done, in order."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu
        self.given = self.done = 0  # how much work
        self._work: deque[Callable[[], Any]] = deque()  # the rest; what is done holds no memory

    def add(self, work: Callable[[], Any]) -> None:
        self.given += 1
        self._work.append(work)

    def run(self, until: int | None = None) -> None:
        """Does its work, up to a place; all of it by default."""
        while self._work and (until is None or self.done < until):
            self.done += 1
            self._work.popleft()()

    synchronize = run

    def wait_event(self, event: FakeEvent) -> None:
        self.add(event.synchronize)


class FakeEvent:
    """A place in a stream."""

    def record(self, stream: FakeStream) -> None:
        self.stream, self.place = stream, stream.given

    def query(self) -> bool:
        return self.stream.done >= self.place

    def synchronize(self) -> None:
        self.stream.run(self.place)


class FakeGpu:
    """What ``CudaTensors`` uses of torch."""

    uint8 = torch.uint8
    from_numpy = staticmethod(torch.from_numpy)

    def __init__(self) -> None:
        self.main = FakeStream(self)  # of the program
        self.current = self.main
        self.recorded: list[tuple[int, FakeStream]] = []
        self.cuda = self

    def device(self, kind: str, number: int) -> str:
        return f"{kind}:{number}"

    def Stream(self, device: str) -> FakeStream:
        self.side = FakeStream(self)
        return self.side

    def Event(self) -> FakeEvent:
        return FakeEvent()

    def current_device(self) -> int:
        return 0

    def current_stream(self, gpu: int) -> FakeStream:
        return self.current

    def set_stream(self, stream: FakeStream) -> None:
        self.current = stream

    def empty(
        self, shape: Any, dtype: torch.dtype, device: str | None = None, pin_memory: bool = False
    ) -> torch.Tensor:
        assert pin_memory == (device is None)
        memory = torch.empty(shape, dtype=dtype)
        memory.numpy().view(np.uint8).fill(GARBAGE)
        if device is None:
            return memory
        made = memory.as_subclass(OnGpu)
        made.gpu = self
        return made

    def read(self, tensor: torch.Tensor) -> np.ndarray:
        """What the program sees: its stream has then done what it waits for."""
        self.main.run()
        return tensor.as_subclass(torch.Tensor).numpy().copy()
