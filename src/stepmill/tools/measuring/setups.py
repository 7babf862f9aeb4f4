"""Which settings of a pool to try: where the envs run, how many, on how many workers, and in which batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

_NATIVE_ENVS = (8, 64, 512, 4096)
_ENVS_PER_WORKER = (1, 4, 16)
_EQUAL = 0.97  # of two settings whose speeds are so close, the simpler one is better


@dataclass(frozen=True)
class Setup:
    """One choice of settings.

    Args:
        num_envs: How many envs.
        backend: Where they run.
        workers: How many threads or processes step them; None: as many as ``make`` chooses.
        batch_size: How many results make a batch; None is sync.
    """

    num_envs: int
    backend: str
    workers: int | None = None
    batch_size: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``make`` that are not defaults."""
        given: dict[str, Any] = {"num_envs": self.num_envs}
        if self.backend != "thread":  # native envs have it by default
            given["backend"] = self.backend
        if self.workers is not None:
            given["num_threads" if self.backend == "thread" else "num_workers"] = self.workers
        if self.batch_size is not None:
            given["batch_size"] = self.batch_size
        return given

    def __str__(self) -> str:
        said = [f"{self.num_envs:,} env{'s' * (self.num_envs > 1)}"]
        if self.workers is not None:
            what = "thread" if self.backend == "thread" else "worker"
            said.append(f"{self.workers} {what}{'s' * (self.workers > 1)}")
        elif self.backend == "inline":
            said.append("inline")
        said.append("sync" if self.batch_size is None else f"batches of {self.batch_size:,}")
        return ", ".join(said)

    @property
    def effort(self) -> tuple[int, bool, int]:
        """What it takes: less is simpler."""
        return self.num_envs, self.batch_size is not None, self.workers or 1


def first_setups(is_native: bool, cores: int, num_envs: int | None) -> list[Setup]:
    """Sync pools: all numbers of envs and workers that are worth a try."""
    if is_native:
        counts = _NATIVE_ENVS if num_envs is None else (num_envs,)
        return [Setup(n, "thread", threads) for n in counts for threads in up_to(cores) if threads <= n]
    if num_envs is not None:
        found = [Setup(num_envs, "inline")]
        return found + [Setup(num_envs, "process", n) for n in up_to(2 * cores) if n <= num_envs]
    workers = [n for n in up_to(2 * cores) if 2 * n >= cores]
    envs = sorted({n * share for n in workers for share in _ENVS_PER_WORKER})
    setups = [Setup(cores * share, "inline") for share in _ENVS_PER_WORKER]
    return setups + [Setup(n, "process", w) for n in envs for w in workers if n % w == 0 and n // w in _ENVS_PER_WORKER]


def batch_setups(best: Setup) -> list[Setup]:
    """The same in async, with smaller and smaller batches."""
    if best.backend == "inline":  # nothing goes on while a batch is received
        return []
    sizes = {best.num_envs // share for share in (2, 4, 8)} - {0, best.num_envs}
    return [replace(best, batch_size=size) for size in sorted(sizes, reverse=True)]


def best_of(rates: dict[Setup, float]) -> Setup:
    """The simplest one that is about as fast as the fastest."""
    fastest = max(rates.values())
    return min((setup for setup, rate in rates.items() if rate >= _EQUAL * fastest), key=lambda setup: setup.effort)


def up_to(most: int) -> list[int]:
    """1, 2, 4 and so on, and the number itself."""
    found = [1]
    while found[-1] * 2 < most:
        found.append(found[-1] * 2)
    return sorted({*found, most})
