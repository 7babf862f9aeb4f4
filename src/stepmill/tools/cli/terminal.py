"""What commands show: results on stdout, as a table or as JSON; progress and remarks on stderr.

Without a terminal, or with ``NO_COLOR`` in the environment, there is neither a progress bar nor colour.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.control import Control
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.segment import ControlType
from rich.table import Table
from rich.text import Text

from stepmill.tools.cli import interrupts
from stepmill.tools.cli.interrupts import INTERRUPTED

_REFRESH_S = 0.05
_NARROW = 90  # columns; in a narrower terminal the bar is short


class Terminal:
    """Where a command writes.

    Args:
        json: Whether the result is one JSON document on stdout.
    """

    def __init__(self, json: bool = False) -> None:
        self.json = json
        plain = "NO_COLOR" in os.environ
        # Paths, ids and messages are the user's: nothing in them is markup, or the name of an emoji.
        given: dict[str, Any] = {"highlight": False, "markup": False, "emoji": False, "no_color": plain or None}
        self.out = Console(**given)
        self.notes = Console(stderr=True, **given)
        self.draws = self.notes.is_terminal and not plain
        self._stdout: int | None = None
        if json:
            self._set_stdout_aside()

    def _set_stdout_aside(self) -> None:
        """What envs and packages print goes to stderr until the document is written: it is alone on stdout."""
        sys.stdout.flush()
        self._stdout = os.dup(1)
        os.dup2(2, 1)

    def close(self) -> None:
        """Puts stdout back."""
        if self._stdout is not None:
            sys.stdout.flush()
            os.dup2(self._stdout, 1)
            os.close(self._stdout)
            self._stdout = None

    def result(self, document: Any, draw: Callable[[Console], None]) -> None:
        """Writes the result: the document with ``--json``, else what ``draw`` prints."""
        if self.json:
            self.close()
            sys.stdout.write(f"{json.dumps(json_value(document, str), indent=2, allow_nan=False)}\n")
        else:
            draw(self.out)

    def line(self, document: Any) -> None:
        """Writes one line of JSON now, for a command that goes on; what envs print stays aside."""
        content = json.dumps(json_value(document, str), allow_nan=False)
        os.write(1 if self._stdout is None else self._stdout, f"{content}\n".encode())

    def remark(self, text: str) -> None:
        """Says something beside the result."""
        self.notes.print(text, soft_wrap=True)

    def clear(self) -> None:
        """Removes the bar of a process that could not do so itself."""
        if self.draws:
            self.notes.control(Control((ControlType.ERASE_IN_LINE, 2)), Control((ControlType.CARRIAGE_RETURN,)))
            self.notes.show_cursor(True)

    def progress(self, what: str, total: float | None, unit: str = "steps") -> ProgressLine:
        """A bar for ``total`` steps, or of a length that is not known; to be used in a ``with``."""
        return ProgressLine(self, what, total, unit)


class _Progress(Progress):
    """Leaves room for the ^C that a terminal writes after the line: else that goes on in the next line, and what is
    erased at the end is only that one.
    """

    above: RenderableType | None = None

    def get_renderables(self) -> Iterator[RenderableType]:
        if self.above is not None:
            yield _Narrower(self.above)
        yield _Narrower(self.make_tasks_table(self.tasks))


class _Narrower:
    """Something in a narrower terminal."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self._shown, options.update_width(max(options.max_width - len("^C") - 1, 1)))


class ProgressLine:
    """Shows how far a command is, how fast it goes and how long it will take; nothing where there is no terminal."""

    def __init__(self, terminal: Terminal, what: str, total: float | None, unit: str) -> None:
        width = 40 if terminal.notes.width >= _NARROW else 12
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=width),
            TextColumn("{task.fields[said]}", markup=False),
            TimeRemainingColumn(),
        )
        self._progress = _Progress(*columns, console=terminal.notes, disable=not terminal.draws, transient=True)
        self._task: TaskID = self._progress.add_task(what, total=total, said="")
        self._unit = unit
        self._added = self._next = 0.0

    def add(self, done: float, said: str = "") -> None:
        """Moves the bar. ``said`` is shown after the speed. Called after every batch, so it seldom does anything.

        Raises KeyboardInterrupt if a Ctrl-C got lost.
        """
        interrupts.check()
        self._added += done
        now = time.monotonic()
        if now < self._next or self._progress.disable:
            return
        self._next = now + _REFRESH_S
        self._progress.advance(self._task, self._added)
        self._added = 0.0
        speed = self._progress.tasks[self._task].speed
        shown = f"{short(speed)} {self._unit}/s" if speed else ""
        self._progress.update(self._task, said=", ".join(filter(None, [shown, said])))

    def say(self, said: str) -> None:
        """Says at once what is being done, before something that takes long."""
        self._next = 0.0
        self.add(0, said)

    def show_above(self, rows: RenderableType) -> None:
        """Shows what there is so far above the bar, as long as that is there."""
        self._progress.above = rows

    def expect(self, total: float) -> None:
        """Says how long the way is, once that is known."""
        self._progress.update(self._task, total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._progress.stop()


@dataclass
class Ending:
    """How a long command ended."""

    interrupted: bool = False

    @property
    def code(self) -> int:
        return INTERRUPTED if self.interrupted else 0


@contextlib.contextmanager
def until_interrupted() -> Iterator[Ending]:
    """Runs a block until Ctrl-C ends it: what is there by then is the result."""
    ending = Ending()
    try:
        yield ending
    except KeyboardInterrupt:
        ending.interrupted = True
    except Exception:
        if not interrupts.pressed():  # what failed then, failed because of that
            raise
    ending.interrupted |= interrupts.pressed()


def new_table(terminal: Console, **arguments: Any) -> Table:
    """An empty table, which suits a terminal or a file."""
    return Table(box=box.ROUNDED if terminal.is_terminal else box.ASCII2, **arguments)


def pairs(rows: Mapping[str, str | Text]) -> Padding:
    """Names and what there is to say about them, in two columns; what has nothing to say is left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", min_width=max(map(len, rows), default=0))  # names are typed, so they are not cut
    table.add_column()
    for name, text in rows.items():
        if text:
            table.add_row(name, Text(text) if isinstance(text, str) else text)
    return Padding(table, (0, 0, 0, 2))


def short(number: float) -> str:
    """Three digits and a letter: 24.1 M, 98.3 k."""
    for unit, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= unit:
            value = number / unit
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}{letter}"
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def ratio_text(ratio: float) -> str:
    """How many times as fast: 0.96, 38.4, 2,680."""
    return f"{ratio:.3g}" if ratio < 100 else f"{ratio:,.0f}"


def json_value(value: Any, text_of: Callable[[Any], str] = repr) -> Any:
    """What JSON has no form for, such as an infinity, is a text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): json_value(one, text_of) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(one, text_of) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else text_of(value)
