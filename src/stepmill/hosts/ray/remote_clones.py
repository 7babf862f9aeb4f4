"""The driver's side of states by fork on Ray: a state is a process of the actor that its env was in."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from stepmill.hosts.process.caller.clones import CloneTickets, unusable
from stepmill.values.saved_states import StateTicket


class RemoteClone:
    """A clone in an actor. When nothing refers to this object any more, as states do, the actor is told.

    Attributes:
        group: Whose actor has it.
        its_ticket: What the actor knows it by.
        about: What else the host wants to know when it is woken.
        is_lost: Whether that actor was replaced.
    """

    is_lost = False

    def __init__(self, group: int, its_ticket: bytes, about: Any) -> None:
        self.group, self.its_ticket, self.about = group, its_ticket, about


class RemoteClones(CloneTickets[RemoteClone]):
    """The clones of a pool, in its actors. The limits are those of each actor."""

    def __init__(self) -> None:
        super().__init__()
        self._untidy: set[int] = set()  # groups whose actors may have clones that nobody needs

    @property
    def limits(self) -> tuple[int, int | None]:
        return self.limit, self.memory

    def add(self, group: int, its_ticket: bytes, about: Any) -> StateTicket:
        """A ticket for what an actor has saved, for which it has its own."""
        clone = RemoteClone(group, its_ticket, about)
        # The actor is told with the next call: states may go in the middle of any code, also of Ray's own.
        weakref.finalize(clone, self._untidy.add, group).atexit = False
        return self.ticket(clone)

    def find_for(self, env_id: int, ticket: bytes, group: int) -> RemoteClone:
        """The clone that a ticket is for. Raises ``StateError`` if it is not one of this group's actor."""
        clone = self.find(env_id, ticket)
        if clone.is_lost:
            raise unusable(env_id, "it was saved by fork, and has ended with the Ray actor that it was in")
        if clone.group != group:
            why = "it was saved by fork, as a process of another Ray actor: only envs of the same actor can take it"
            raise unusable(env_id, why)
        return clone

    def lose(self, group: int) -> None:
        """The actor of a group is gone, and its clones with it."""
        for clone in list(self._alive.values()):
            clone.is_lost |= clone.group == group

    def doubt(self, group: int) -> None:
        """Its actor may have saved envs for a call that nobody has the result of."""
        self._untidy.add(group)

    def tidy(self, tell: Callable[[int, list[bytes]], None]) -> None:
        """Tells actors that may have clones that nobody needs which ones are still in use."""
        for group in list(self._untidy):
            self._untidy.discard(group)  # first: another state may go meanwhile
            try:
                tell(group, [one.its_ticket for one in list(self._alive.values()) if one.group == group])
            except BaseException:
                self._untidy.add(group)
                raise
