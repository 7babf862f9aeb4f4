"""A space for values that no other space describes."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

__all__ = ["AnyValue"]


class AnyValue(spaces.Space[Any]):
    """Contains everything. Its values are not arrays, so they travel pickled."""

    def contains(self, x: Any) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AnyValue)

    def __repr__(self) -> str:
        """It has no arguments."""
        return "AnyValue()"
