"""Warnings about good rows: shown even where warnings are errors, since raising one would lose the rows."""

from __future__ import annotations

import warnings

__all__ = ["tell"]

_told: set[str] = set()
_MOST = 1000  # texts with something new in each would go on forever


def tell(text: str) -> None:
    """Warns of each text once in a process."""
    if text in _told or len(_told) >= _MOST:
        return
    _told.add(text)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(text, stacklevel=3)
