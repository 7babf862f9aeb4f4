"""When an actor is sent a request, and how much of its work it answers with.

A request costs a millisecond or two of both machines, however many rows its answer has. So answers should be large, but
rows that are done wait for them, and a worker that has no env to step waits too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["Pace"]

# The longest and the shortest time that actors without a request are left alone.
_LONGEST_S, _SHORTEST_S = 2e-2, 5e-4


class Pace:
    """Of all actors of a pool, by group of envs."""

    def __init__(self, sizes: Sequence[int], workers: int, batch_size: int, as_ready: bool) -> None:
        """``workers``: of each actor. ``as_ready``: see ``Settings``."""
        num_envs = sum(sizes)
        # With two requests an actor works on one while the answer to the other is on its way.
        self.most_requests = 2 if batch_size <= num_envs // 2 or as_ready else 1
        self._most = [-(-size // self.most_requests) for size in sizes]
        if as_ready:  # no batch is waited for
            self._spare = [max(workers, size // 4) for size in sizes]
        else:
            self._spare = [size - -(-size * batch_size // num_envs) for size in sizes]
        self._grace = _LONGEST_S
        self._left_alone: dict[int, float] = {}  # since when, by group
        self._asked_at_last: dict[int, float] = {}  # the same of those that were asked after all

    def most(self, group: int) -> int:
        """For how many envs a request is at most: the rest is for the other one, so that one is always on its way."""
        return self._most[group]

    def spare(self, group: int) -> int:
        """How many envs may still be at work when the actor answers: if all are, it answers with its part of a batch.

        They keep its workers busy until the next request is there.
        """
        return self._spare[group]

    # ---- actors that have envs at work, and no request ---------------------------------------

    def due(self, unasked: Collection[int], is_another_asked: bool, now: float) -> list[int]:
        """Those of them that are to be sent a request for what they have.

        Mostly other actors complete the batch, and the next actions go in that request's place. So they are left alone
        for a while, if another actor is to answer. Where that is in vain, because others are slow, it is soon short.
        """
        since = {group: self._left_alone.get(group, now) for group in unasked}
        due = [group for group in unasked if not is_another_asked or now - since[group] >= self._grace]
        if due and is_another_asked:
            self._grace = max(self._grace / 2, _SHORTEST_S)
            self._asked_at_last = {group: since[group] for group in due}
        self._left_alone = {group: when for group, when in since.items() if group not in due}
        return due

    def patience(self, now: float) -> float | None:
        """How long until the first of those that are left alone is due; None if there is none."""
        if not self._left_alone:
            return None
        return max(0.0, min(self._left_alone.values()) + self._grace - now)

    def rows_came(self, group: int, now: float) -> None:
        """From an actor for whose sake others were left alone, or should have been a little longer."""
        for waits, factor in ((self._left_alone, 2), (self._asked_at_last, 4)):  # 4: the grace was halved then
            if any(other != group and now - since < _LONGEST_S for other, since in waits.items()):
                self._grace = min(factor * self._grace, _LONGEST_S)
        self._asked_at_last = {}
