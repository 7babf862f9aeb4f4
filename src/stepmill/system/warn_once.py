"""Warnings that never become errors, even under ``-W error``: most are about good rows, which raising would lose."""

from __future__ import annotations

import os
import sys
import warnings

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_shown: set[str] = set()
_MOST = 1000  # texts that differ each time would be shown forever


def warn_once(text: str) -> None:
    """Shows each warning once per process."""
    if text in _shown or len(_shown) >= _MOST:
        return
    _shown.add(text)
    warn(text)


def warn(text: str) -> None:
    """Shows a warning, every time."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(text, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """How many levels up the first frame outside this package is: a warning should show that line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
