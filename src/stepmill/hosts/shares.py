"""Which worker has which envs: neighbours, as evenly as possible, all of one interpreter."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from stepmill import _native
from stepmill.errors import ConfigError
from stepmill.settings import Settings
from stepmill.sources.source import NativeSource, PythonSource


class Share(NamedTuple):
    """The envs of one worker, and the interpreter that runs them; None is the caller's own."""

    first: int
    last: int  # and one more
    python: str | None

    @property
    def num_envs(self) -> int:
        """How many envs it has."""
        return self.last - self.first


def share_out(source: PythonSource | NativeSource, num_envs: int, num_workers: int) -> list[Share]:
    """The envs of each worker. ``num_workers`` is at least the number of stretches."""
    stretches = _stretches(source, num_envs)
    counts = _workers_of_each([last - first for first, last, _ in stretches], num_workers)
    return [share for stretch, count in zip(stretches, counts, strict=True) for share in _split(stretch, count)]


def with_workers_for(source: PythonSource, settings: Settings, asked: int | None) -> Settings:
    """The settings with enough workers for every stretch of neighbours with the same interpreter.

    ``asked`` is the number that the user gave, if any. Envs that wait do not hold each other up: as many workers as
    there are cores are enough for them.
    """
    if asked is None and (source.has_coroutines or source.threads):
        settings = replace(settings, num_workers=min(settings.num_workers, _native.available_cores()))
    needed = len(_stretches(source, settings.num_envs))
    if settings.num_workers >= needed:
        return settings
    if asked is not None:
        raise ConfigError(
            f"num_workers: expected at least {needed}, as the envs are in {needed} groups of neighbours with the same "
            f"python and a worker runs one python, got {asked}. Put envs of the same python next to each other"
        )
    return replace(settings, num_workers=needed)


def _stretches(source: PythonSource | NativeSource, num_envs: int) -> list[Share]:
    if isinstance(source, NativeSource) or not source.has_islands:
        return [Share(0, num_envs, None)]
    out, first = [], 0
    for python, envs in itertools.groupby(source.envs, lambda env: env.python):
        last = first + sum(1 for _ in envs)
        out.append(Share(first, last, python))
        first = last
    return out


def _workers_of_each(sizes: Sequence[int], num_workers: int) -> list[int]:
    """One worker for each stretch, and each further one where the most envs share one."""
    counts = [1] * len(sizes)
    for _ in range(num_workers - len(sizes)):
        fullest = max(range(len(sizes)), key=lambda i: (sizes[i] / counts[i], -i))
        counts[fullest] += 1
    return counts


def _split(stretch: Share, count: int) -> Iterator[Share]:
    first, last, python = stretch
    for w in range(count):
        yield Share(first + w * (last - first) // count, first + (w + 1) * (last - first) // count, python)
