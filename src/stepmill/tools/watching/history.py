"""How a run went, from its beginning: few points, however long it takes."""

from __future__ import annotations

__all__ = ["History"]

_MOST_POINTS = 240


class History:
    """Points at equal distances. When there are too many, neighbours are merged, and the distance doubles."""

    def __init__(self, now: float) -> None:
        self._start = self._last = now
        self._distance = 1.0  # seconds
        self._points: list[tuple[float, float, float | None]] = []

    def wants(self, now: float) -> bool:
        """Whether it is time for the next point."""
        return now - self._last >= self._distance

    def add(self, now: float, rate: float, mean_return: float | None) -> None:
        """Adds a point: steps per second, and the mean of the returns since the last one, if there are any."""
        self._last = now
        self._points.append((now - self._start, rate, mean_return))
        if len(self._points) > _MOST_POINTS:
            pairs = zip(self._points[::2], self._points[1::2], strict=False)
            self._points = [_merged(*pair) for pair in pairs]
            self._distance *= 2

    def columns(self) -> dict[str, list[float | None]]:
        """The points, oldest first: seconds since the beginning, steps per second, mean returns."""
        points = self._points[:]
        return {
            "seconds": [round(one[0], 1) for one in points],
            "rate": [round(one[1], 1) for one in points],
            "returns": [None if one[2] is None else round(one[2], 4) for one in points],
        }


def _merged(
    first: tuple[float, float, float | None], second: tuple[float, float, float | None]
) -> tuple[float, float, float | None]:
    returns = [one for one in (first[2], second[2]) if one is not None]
    return second[0], (first[1] + second[1]) / 2, sum(returns) / len(returns) if returns else None
