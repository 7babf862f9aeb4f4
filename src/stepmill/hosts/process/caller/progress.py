"""Tells the user that envs are still being built, if that takes a while."""

from __future__ import annotations

import contextlib
import sys

_SILENT_S = 2.0
_TERMINAL_S = 1.0
_LOG_S = 10.0


class Progress:
    """A line on stderr: rewritten in place in a terminal, repeated now and then in a log."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._stream = sys.stderr
        self._is_terminal = False
        with contextlib.suppress(Exception):  # stderr may be None, closed, or anything a notebook put there
            self._is_terminal = self._stream.isatty()
        self._next = _SILENT_S if self._is_terminal else _LOG_S
        self._shown = False

    def until_next(self, elapsed: float) -> float:
        """Seconds until ``show`` has something to do."""
        return max(self._next - elapsed, 0.0)

    def show(self, built: int, elapsed: float) -> None:
        """Shows the progress, if it is time to."""
        if elapsed < self._next:
            return
        self._next = elapsed + (_TERMINAL_S if self._is_terminal else _LOG_S)
        line = f"stepmill: built {built} of {self._total} envs, {elapsed:.0f} s"
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
