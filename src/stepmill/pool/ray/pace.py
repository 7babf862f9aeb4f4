"""When an actor is sent a request, and how much of its work it answers with.

A request costs a millisecond or two of both machines, however many rows its answer has. So answers should be large, but
rows that are done wait for them, and a worker that has no env to step waits too.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Pace"]

# The longest and the shortest wait for actors that have a request, before one is sent to those that have none.
_LONGEST_S, _SHORTEST_S = 2e-2, 5e-4


class Pace:
    """Of all actors of a pool, by group of envs."""

    def __init__(self, sizes: Sequence[int], batch_size: int, as_ready: bool) -> None:
        """``as_ready``: see ``Settings``."""
        num_envs = sum(sizes)
        # With two requests an actor works on one while the answer to the other is on its way.
        self._requests = 2 if batch_size <= num_envs // 2 or as_ready else 1
        self._most = [-(-size // self._requests) for size in sizes]
        if as_ready:  # no batch is waited for
            self._spare = [size // 2 for size in sizes]
            self._least = [1 for _ in sizes]
        else:
            parts = [-(-size * batch_size // num_envs) for size in sizes]
            self._spare = [size - part for size, part in zip(sizes, parts, strict=True)]
            self._least = [max(1, part // 2) for part in parts]
        self._courtesy = _LONGEST_S

    def most(self, group: int) -> int:
        """For how many envs a request is at most: the rest is for the other one, so that one is always on its way."""
        return self._most[group]

    def spare(self, group: int) -> int:
        """How many envs may still be at work when the actor answers: all but its part of a batch.

        They keep its workers busy until the next request is there.
        """
        return self._spare[group]

    def takes_more(self, group: int, waiting: int, under_way: int) -> bool:
        """Whether to send a request for envs that wait. A small one can wait for more if there is another."""
        return waiting > 0 and (not under_way or (under_way < self._requests and waiting >= self._least[group]))

    @property
    def courtesy(self) -> float:
        """How long actors that have a request may take to answer, before the others are sent one for what was to spare.

        Mostly those complete the batch, and the next actions go in that request's place.
        """
        return self._courtesy

    def learn(self, in_time: bool) -> None:
        """Whether that was worth the wait. If it is not, because some actors are slow, it is soon short."""
        self._courtesy = min(2 * self._courtesy, _LONGEST_S) if in_time else max(self._courtesy / 2, _SHORTEST_S)
