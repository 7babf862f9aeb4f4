"""Where the envs of a manager stand, and the moves that change it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError
from stepmill.managers.managed_env import ManagedEnv
from stepmill.managers.moves import Arrival, Handover, Sending
from stepmill.managers.rows import Place
from stepmill.managers.states import EnvState, Standing

__all__ = ["Standings"]

READY, STEPPING, DROPPED, RESETTING = Standing.READY, Standing.STEPPING, Standing.DROPPED, Standing.RESETTING


class Standings:
    """Where each env stands, and which of its results no call has returned yet.

    An env stands in exactly one place: there is one entry per env, and one assignment moves it. Whatever comes in
    between, it has left one place if and only if it is in the next. A result is apart from that: an env may be reset
    while the end of its last episode waits for the next ``step``.

    A move of several envs is written down in ``sending``, ``arrival`` or ``handover`` before it is made, for ``mend``
    to finish it where an exception interrupted it: see ``moves.py``.

    Args:
        envs: What else is known of them, which the moves change as well.
    """

    def __init__(self, envs: list[ManagedEnv]) -> None:
        self._envs = envs
        self._of = dict.fromkeys(range(len(envs)), Standing.UNBUILT)
        self.places: dict[int, Place] = {}  # where the last observation of each is
        self.timesteps: dict[int, BaseEnvTimestep] = {}  # for the next step to return
        self.errors: dict[int, EnvError] = {}  # for the next step to raise
        self.due: dict[int, float] = {}  # when those in RETRYING are reset
        self.sending: Sending | None = None
        self.arrival: Arrival | None = None
        self.handover: Handover | None = None

    # ---- questions ---------------------------------------------------------------------------

    def __getitem__(self, env_id: int) -> Standing:
        """Where an env stands."""
        return self._of[env_id]

    def states(self) -> dict[int, EnvState]:
        """The state of every env."""
        return {one: standing.state for one, standing in self._of.items()}

    def among(self, *standings: Standing) -> list[int]:
        """The envs that stand in one of these places."""
        return [one for one, standing in self._of.items() if standing in standings]

    def count(self, standing: Standing) -> int:
        """How many envs stand there."""
        return list(self._of.values()).count(standing)

    def all_stand(self, standing: Standing, ids: Collection[int]) -> bool:
        """Whether all of these envs stand there; false where there is no such env."""
        try:
            return list(map(self._of.__getitem__, ids)).count(standing) == len(ids)
        except KeyError:
            return False

    def ready(self) -> list[int]:
        """The envs that can take an action."""
        ids = [one for one, standing in self._of.items() if standing is READY]
        return [one for one in ids if one not in self.timesteps] if self.timesteps else ids

    def are_ready(self, ids: Collection[int]) -> bool:
        """Whether all of these envs can take an action; false where there is no such env."""
        return self.all_stand(READY, ids) and (not self.timesteps or self.timesteps.keys().isdisjoint(ids))

    def waiting(self) -> int:
        """How many results the next step has already."""
        return len(self.timesteps) + len(self.errors)

    # ---- moves -------------------------------------------------------------------------------

    def move(self, ids: Iterable[int], standing: Standing) -> None:
        """Puts envs elsewhere, one by one."""
        standings = self._of
        for one in ids:
            standings[one] = standing

    def drop(self, ids: Iterable[int]) -> None:
        """Nobody wants the results of the steps that these envs have in flight."""
        self.move([one for one in ids if self._of[one] is STEPPING], DROPPED)

    def note_sent(self) -> None:
        """What ``sending`` says was sent."""
        sent = self.sending
        if sent is None:
            return
        if sent.resets is None:
            self.move(sent.ids, STEPPING)
        else:
            for one, seed in zip(sent.ids, sent.resets.seeds, strict=True):
                self._envs[one].reset_is_sent(seed, sent.resets.automatic)
                self.due.pop(one, None)
                if not sent.resets.automatic:  # an automatic one leaves the end before it to the next step
                    self.timesteps.pop(one, None)
                    self.errors.pop(one, None)
            for one, params in sent.resets.params.items():
                self._envs[one].params = dict(params)
            for one, episodes in sent.resets.episodes.items():
                self._envs[one].episodes = episodes
            self.move(sent.ids, RESETTING)
        self.sending = None

    def note_arrival(self) -> None:
        """What ``arrival`` says has arrived."""
        came = self.arrival
        if came is None:
            return
        places = self.places
        for one, place in zip(came.ids, came.places, strict=True):
            places[one] = place
        for one, episodes in came.episodes.items():
            self._envs[one].episodes = episodes
        for one, failures in came.failures.items():
            self._envs[one].reset_has_ended(failures)
        if came.lost_worker:
            for env in self._envs:
                env.is_instructed = False  # others were lost with it, and are built anew
        self.due.update(came.due)
        self.errors.update(came.errors)
        self.timesteps.update(came.timesteps)
        if came.standings:
            self._of.update(dict.fromkeys(came.ids, READY) | came.standings)
        else:  # nearly always, and faster
            self.move(came.ids, READY)
        self.arrival = None

    def hand_over(self, handover: Handover) -> None:
        """What the next step was to return or to raise, it does."""
        self.handover = handover
        self.timesteps, self.errors = {}, {}

    # ---- after an exception ------------------------------------------------------------------

    def mend(self, in_flight: Collection[int]) -> None:
        """Finishes the moves that were under way. ``in_flight``: what the pool has."""
        if self.sending is not None:
            if set(in_flight).issuperset(self.sending.ids):
                self.note_sent()
            self.sending = None
        if self.handover is not None and self.handover.is_lost:  # it is for the next step
            self.timesteps.update(self.handover.timesteps)
            self.errors.update(self.handover.errors)
            self.handover = None
        self.note_arrival()

    def reconcile(self, in_flight: Collection[int]) -> None:
        """Believes the pool, where no move tells how it came to that. Those envs wait for a reset in the end."""
        flying = set(in_flight)
        believed = set(self.among(STEPPING, DROPPED, RESETTING))
        self.move(flying - believed, DROPPED)
        self.move(believed - flying, Standing.FAILED)

    # ---- what always holds -------------------------------------------------------------------

    def check(self, in_flight: Collection[int] | None = None) -> None:
        """Raises where something does not hold that does after every move. ``in_flight``: what the pool has."""
        stepping, resetting = set(self.among(STEPPING, DROPPED)), set(self.among(RESETTING))
        retrying, failed = set(self.among(Standing.RETRYING)), set(self.among(Standing.FAILED))
        fresh = set(self.among(Standing.UNBUILT, Standing.BUILT))
        rules = {
            "every env stands in one place": list(self._of) == list(range(len(self._envs))),
            "what the pool has in flight steps or resets": in_flight is None or set(in_flight) == stepping | resetting,
            "what is tried again has its time": self.due.keys() == retrying,
            "an env has one result": self.timesteps.keys().isdisjoint(self.errors),
            "an env steps when its last result is returned": self.timesteps.keys().isdisjoint(stepping | fresh),
            "only failed envs have errors": self.errors.keys() <= failed,
            "what can be seen has a place": self.places.keys() >= set(self.among(READY)),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise AssertionError(f"standings: broken: {'; '.join(broken)}: {self._shown(in_flight)}")

    def _shown(self, in_flight: Collection[int] | None) -> Mapping[str, object]:
        return {
            "standings": {one: standing.name for one, standing in self._of.items()},
            "in flight": in_flight,
            "due": self.due,
            "timesteps": list(self.timesteps),
            "errors": list(self.errors),
        }
