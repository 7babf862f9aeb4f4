"""A line on stderr that says how something slow is getting on."""

from __future__ import annotations

import contextlib
import sys
import time

_SILENT_S = 2.0
_TERMINAL_S = 1.0
_LOG_S = 10.0


class Progress:
    """The line: rewritten in place in a terminal, repeated now and then in a log."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = False
        with contextlib.suppress(Exception):  # stderr may be None, closed, or anything a notebook put there
            self._is_terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._next = _SILENT_S if self._is_terminal else _LOG_S
        self._shown = False

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def until_next(self) -> float:
        """Seconds until ``show`` has something to do."""
        return max(self._next - self._elapsed, 0.0)

    def show(self, text: str) -> None:
        """Shows what is being done, and for how long, if it is time to."""
        elapsed = self._elapsed
        if elapsed < self._next:
            return
        self._next = elapsed + (_TERMINAL_S if self._is_terminal else _LOG_S)
        line = f"stepmill: {text}, {elapsed:.0f} s"
        self._write(f"\r{line}" if self._is_terminal else f"{line}\n")
        self._shown = True

    def end(self) -> None:
        """Moves the cursor to a new line."""
        if self._shown and self._is_terminal:
            self._write("\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(Exception):
            self._stream.write(text)
            self._stream.flush()
