"""A space for what no other describes."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

__all__ = ["AnyValue"]


class AnyValue(spaces.Space[Any]):
    """Holds everything. No array does, so its values travel pickled."""

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyValue)

    def __repr__(self) -> str:
        """Without arguments: there are none."""
        return "AnyValue()"
