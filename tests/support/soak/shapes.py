"""The pools that the soak goes through."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Shape:
    """What ``make`` is told; ``width`` is the length of an observation of int64."""

    num_envs: int
    num_workers: int
    batch_size: int
    autoreset: str = "next_step"
    on_error: str = "restart"
    step_timeout: float | None = 1.0
    width: int = 64

    @property
    def is_async(self) -> bool:
        return self.batch_size < self.num_envs

    def __str__(self) -> str:
        mode = f"async by {self.batch_size}" if self.is_async else "sync"
        rows = f"{self.width * 8 / 1024:g} KiB a row"
        return f"{self.num_envs} envs, {self.num_workers} workers, {mode}, {self.autoreset}, {self.on_error}, {rows}"


# Rows of 64 KiB: many kills then hit a process that is writing one.
_WIDE = 8192

_SYNC = (
    Shape(16, 2, 16),
    Shape(7, 3, 7, "same_step", width=_WIDE),
    Shape(8, 4, 8, on_error="raise"),
    Shape(6, 2, 6, "disabled", step_timeout=None),
)
_ASYNC = (
    Shape(24, 3, 8),
    Shape(9, 2, 1, "same_step", width=_WIDE),
    Shape(16, 4, 12, on_error="raise", step_timeout=None),
    Shape(32, 2, 16, "disabled", width=_WIDE),
)


def shapes(num_envs: int | None, num_workers: int | None, batch_size: int | None) -> Sequence[Sequence[Shape]]:
    """Two lists to be gone through side by side, sync and async; what is given stands in place of their own."""
    return (
        [_changed(one, num_envs, num_workers, None) for one in _SYNC],
        [_changed(one, num_envs, num_workers, batch_size) for one in _ASYNC],
    )


def _changed(shape: Shape, num_envs: int | None, num_workers: int | None, batch_size: int | None) -> Shape:
    envs = num_envs or shape.num_envs
    if shape.is_async:
        batch = batch_size or (shape.batch_size if envs == shape.num_envs else max(envs // 2, 1))
    else:
        batch = envs
    return replace(
        shape, num_envs=envs, num_workers=min(num_workers or shape.num_workers, envs), batch_size=min(batch, envs)
    )
