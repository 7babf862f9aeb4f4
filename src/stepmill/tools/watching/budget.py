"""How much time pictures, and texts, may take."""

from __future__ import annotations

from collections import deque

__all__ = ["PLAYED_SHARE", "SHARE", "TEXT_SHARE", "Budget"]

SHARE = 0.05  # of the time, at most, for pictures
PLAYED_SHARE = 0.5  # the same where envs are only played to be seen
TEXT_SHARE = 0.01  # of the calling thread's time, for the texts of envs that users have picked
_BURST_S = 0.05  # of drawing, which may be saved up while nobody looks
_WINDOW_S = 10.0  # over which the share is measured that users see


class Budget:
    """Time for drawing: nothing is drawn before all that was spent is at most a share of the time that has passed.

    The first picture of each worker is not counted: it loads what draws.

    Args:
        now: The time at which it starts, in seconds.
        workers: How many workers draw, for the share of their time.
        limit: The share.
    """

    def __init__(self, now: float, workers: int, limit: float = SHARE) -> None:
        self.limit = limit
        self._workers = workers
        self._credit = 0.0
        self._counted_until = now
        self._spent = 0.0  # by workers
        self._samples: deque[tuple[float, float]] = deque([(now, 0.0)])

    def allows(self, now: float) -> bool:
        """Whether a picture may be drawn now."""
        self._credit = min(self._credit + (now - self._counted_until) * self.limit, _BURST_S)
        self._counted_until = now
        return self._credit >= 0.0

    def spend(self, seconds: float, workers: int = 1) -> None:
        """Counts what one picture took, while so many workers drew at once."""
        self._spent += seconds
        self._credit -= seconds / workers

    def spend_beside(self, seconds: float) -> None:
        """Counts work for pictures that no worker did: it delays the next one."""
        self._credit -= seconds

    def share(self, now: float) -> float:
        """The part of the workers' time that went into pictures lately."""
        if now - self._samples[-1][0] >= 0.5:
            self._samples.append((now, self._spent))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
        since, spent = self._samples[0]
        return (self._spent - spent) / ((now - since) * self._workers) if now > since else 0.0
