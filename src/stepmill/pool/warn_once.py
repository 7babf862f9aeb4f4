"""Warnings about good rows: shown even where warnings are errors, since raising one would lose the rows."""

from __future__ import annotations

import os
import sys
import warnings

__all__ = ["warn_once"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

_shown: set[str] = set()
_MOST = 1000  # texts with something new in each would go on forever


def warn_once(text: str) -> None:
    """Warns of each text once in a process."""
    if text in _shown or len(_shown) >= _MOST:
        return
    _shown.add(text)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(text, stacklevel=_level_of_caller())


def _level_of_caller() -> int:
    """How far up the first frame is that is not ours: the line that a warning should show."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
