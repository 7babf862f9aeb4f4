"""A progress bar on stderr, if that is a terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

__all__ = ["Bar", "shown_progress"]


class Counts(Protocol):
    """What the bar shows."""

    kept: int
    steps: int
    missing: list[int]


class Bar:
    """Shows how many episodes are there."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._shown: tuple[int, int] | None = None

    def show(self, counts: Counts) -> None:
        """Updates the bar. Called after every batch, so it does nothing if no episode has ended."""
        now = counts.kept, len(counts.missing)
        if now != self._shown:
            self._shown = now
            failed = f", {len(counts.missing)} missing" if counts.missing else ""
            self._progress.update(self._task, completed=sum(now), said=f"{counts.steps:,} steps{failed}")

    def finish(self) -> None:
        """All episodes are there, and are put together."""
        self._progress.update(self._task, said="writing the data set")


@contextlib.contextmanager
def shown_progress(wanted: bool | None, name: str, episodes: int) -> Iterator[Bar]:
    """A bar for so many episodes; one that shows nothing if it is not wanted."""
    shows = sys.stderr.isatty() if wanted is None else wanted
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("episodes, {task.fields[said]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shows) as progress:
        yield Bar(progress, progress.add_task(name, total=episodes, said="0 steps"))
