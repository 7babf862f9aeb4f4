"""Pools of ``backend="cuda"`` without a GPU: kernels that are compiled for the host, and a driver that runs them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.device.cuda import driver, nvrtc
from stepmill.errors import CompileError
from support.host_kernels import CPU, Kernels


class HostGpu:
    """The GPU of these tests: what was compiled for it, and what it has given out."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.compiled: list[int] = []  # for which architecture

    def install(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(driver, "LIBRARY", self.kernels.driver_path)
        patch.setattr(driver, "MEMORY_KIND", CPU)
        patch.setattr(nvrtc, "version", lambda: (13, 0))
        patch.setattr(nvrtc, "compile_kernel", self._compile)

    def _compile(self, source: str, architecture: int, includes: Sequence[Path], defines: Sequence[str] = ()) -> bytes:
        self.compiled.append(architecture)
        try:
            library = self.kernels.compile(source, *defines, *(f"-I{one}" for one in includes))
        except RuntimeError as error:
            raise CompileError(nvrtc._explained(str(error)), output=str(error)) from None
        return str(library).encode() + b"\0"

    def left(self) -> dict[str, int]:
        return self.kernels.left()

    @contextmanager
    def with_number(self, name: str, value: int, kind: Any = ctypes.c_int) -> Iterator[None]:
        """Meanwhile a number of the driver is another one, such as ``memory``: what is left of it."""
        number = kind.in_dll(self.kernels.driver, f"fake_{name}")
        before, number.value = number.value, value
        try:
            yield
        finally:
            number.value = before

    @contextmanager
    def memory_left(self, size: int) -> Iterator[None]:
        with self.with_number("memory", size, ctypes.c_size_t):
            yield


class Both:
    """The same pool on the GPU and on threads, which are to show the same."""

    def __init__(
        self, task: Any, view: str = "gymnasium", *, num_envs: int = 5, seed: Any = 3, **arguments: Any
    ) -> None:
        given = {"num_envs": num_envs, "seed": seed, **arguments}
        self.view = view
        self.gpu = stepmill.make(task, view, backend="cuda", **given)
        try:
            self.cpu = stepmill.make(task, view, backend="thread", **{k: v for k, v in given.items() if k != "output"})
        except BaseException:
            self.gpu.close()
            raise
        self.space = self.cpu.spec.action_space
        self.space.seed(7)

    @property
    def pools(self) -> tuple[Any, Any]:
        return self.gpu, self.cpu

    def actions(self, count: int | None = None) -> Any:
        """One per env, or as many as asked for."""
        rows = [self.space.sample() for _ in range(self.cpu.num_envs if count is None else count)]
        return stacked(rows)

    def do(self, call: Callable[[Any], Any]) -> tuple[Any, Any]:
        """The results of both, which are to be the same."""
        return in_float32(self.view, call(self.gpu)), in_float32(self.view, call(self.cpu))

    def close(self) -> None:
        for pool in self.pools:
            pool.close()


def stacked(rows: list[Any]) -> Any:
    """A batch of actions."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: stacked([row[key] for row in rows]) for key in first}
    if isinstance(first, tuple):
        return tuple(stacked(list(parts)) for parts in zip(*rows, strict=True))
    return np.stack(rows)


def in_float32(view: str, result: Any) -> Any:
    """A result with rewards in float32, as a GPU has them in all views; others have float64 in the gymnasium view."""
    if view == "gymnasium" and isinstance(result, tuple) and len(result) == 5:
        return result[0], result[1].astype(np.float32), *result[2:]
    return result
