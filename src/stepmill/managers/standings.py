"""Where the envs of a manager stand, and the moves that change it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError
from stepmill.managers.env_rows import StoredObs
from stepmill.managers.managed_env import ManagedEnv
from stepmill.managers.states import Arrival, EnvState, Handover, Sending, Standing

READY, STEPPING, DROPPED, RESETTING = Standing.READY, Standing.STEPPING, Standing.DROPPED, Standing.RESETTING


class Standings:
    """Where each env stands, and which of its results no call has returned yet.

    An env is in exactly one place: there is one entry per env, and one assignment moves it. Whatever interrupts that,
    it has left one place if and only if it is in the next. A result is separate from that: an env may be reset while
    the end of its last episode waits for the next ``step``.

    A move of several envs is written down in ``sending``, ``arrival`` or ``handover`` before it is made, so
    that ``mend`` can finish it if an exception interrupted it: see ``states.py``.

    Args:
        envs: What else is known about them, which moves change as well.
    """

    def __init__(self, envs: list[ManagedEnv]) -> None:
        self._envs = envs
        self._standing_of = dict.fromkeys(range(len(envs)), Standing.UNBUILT)
        self.last_obs: dict[int, StoredObs] = {}  # the last observation of each env
        self.timesteps: dict[int, BaseEnvTimestep] = {}  # for the next `step` to return
        self.errors: dict[int, EnvError] = {}  # for the next `step` to raise
        self.retry_at: dict[int, float] = {}  # when those in RETRYING are reset
        self.sending: Sending | None = None
        self.arrival: Arrival | None = None
        self.handover: Handover | None = None

    # ---- questions ---------------------------------------------------------------------------

    def __getitem__(self, env_id: int) -> Standing:
        """Where an env stands."""
        return self._standing_of[env_id]

    def states(self) -> dict[int, EnvState]:
        """The state of every env."""
        return {one: standing.state for one, standing in self._standing_of.items()}

    def ids_in(self, *standings: Standing) -> list[int]:
        """The envs that are in one of these standings."""
        return [one for one, standing in self._standing_of.items() if standing in standings]

    def count(self, standing: Standing) -> int:
        """How many envs are in this standing."""
        return list(self._standing_of.values()).count(standing)

    def all_in(self, standing: Standing, ids: Collection[int]) -> bool:
        """Whether all of these envs are in this standing; false if an id is unknown."""
        try:
            return list(map(self._standing_of.__getitem__, ids)).count(standing) == len(ids)
        except KeyError:
            return False

    def ready(self) -> list[int]:
        """The envs that can take an action."""
        ids = [one for one, standing in self._standing_of.items() if standing is READY]
        return [one for one in ids if one not in self.timesteps] if self.timesteps else ids

    def are_ready(self, ids: Collection[int]) -> bool:
        """Whether all of these envs can take an action; false if an id is unknown."""
        return self.all_in(READY, ids) and (not self.timesteps or self.timesteps.keys().isdisjoint(ids))

    def result_count(self) -> int:
        """How many results have come for the next ``step``."""
        return len(self.timesteps) + len(self.errors)

    # ---- moves -------------------------------------------------------------------------------

    def move(self, ids: Iterable[int], standing: Standing) -> None:
        """Moves envs to another standing, one by one."""
        standing_of = self._standing_of
        for one in ids:
            standing_of[one] = standing

    def drop(self, ids: Iterable[int]) -> None:
        """The results of the steps that these envs have in flight will be thrown away."""
        self.move([one for one in ids if self._standing_of[one] is STEPPING], DROPPED)

    def note_sent(self) -> None:
        """Makes the move ``sending``: it was sent."""
        sent = self.sending
        if sent is None:
            return
        if sent.saved is not None:
            for one, saved in zip(sent.ids, sent.saved, strict=True):
                self._envs[one].note_restored(saved)
            self.move(sent.ids, Standing.RESTORING)
        elif sent.resets is None:
            self.move(sent.ids, STEPPING)
        else:
            for one, seed in zip(sent.ids, sent.resets.seeds, strict=True):
                self._envs[one].note_reset_sent(seed, sent.resets.automatic)
                self.retry_at.pop(one, None)
                if not sent.resets.automatic:  # an automatic one leaves the end of the episode to the next `step`
                    self.timesteps.pop(one, None)
                    self.errors.pop(one, None)
            for one, params in sent.resets.params.items():
                self._envs[one].params = dict(params)
            for one, episodes in sent.resets.episodes.items():
                self._envs[one].episodes = episodes
            self.move(sent.ids, RESETTING)
        self.sending = None

    def note_arrival(self) -> None:
        """Makes the move ``arrival``: it has come."""
        came = self.arrival
        if came is None:
            return
        self.last_obs.update(zip(came.ids, came.stored_obs, strict=True))
        for one, episodes in came.episodes.items():
            self._envs[one].episodes = episodes
        for one, failures in came.failures.items():
            self._envs[one].note_reset_result(failures)
        if came.lost_worker:
            for env in self._envs:
                env.is_instructed = False  # others may have been lost with it, and are built anew
        self.retry_at.update(came.retry_at)
        self.errors.update(came.errors)
        self.timesteps.update(came.timesteps)
        if came.standings:
            self._standing_of.update(dict.fromkeys(came.ids, READY) | came.standings)
        else:  # nearly always, and faster
            self.move(came.ids, READY)
        self.arrival = None

    def hand_over(self, handover: Handover) -> None:
        """Makes the move ``handover``: ``step`` returns or raises what has come."""
        self.handover = handover
        self.timesteps, self.errors = {}, {}

    # ---- after an exception ------------------------------------------------------------------

    def mend(self, in_flight: Collection[int]) -> None:
        """Finishes the moves that were under way. ``in_flight``: the envs that the pool has in flight."""
        if self.sending is not None:
            if set(in_flight).issuperset(self.sending.ids):
                self.note_sent()
            self.sending = None
        if self.handover is not None and self.handover.is_lost:  # it is for the next `step`
            self.timesteps.update(self.handover.timesteps)
            self.errors.update(self.handover.errors)
            self.handover = None
        self.note_arrival()

    def reconcile(self, in_flight: Collection[int]) -> None:
        """Believes the pool where no move explains the difference. The caller has to reset those envs."""
        really = set(in_flight)
        believed = set(self.ids_in(STEPPING, DROPPED, RESETTING, Standing.RESTORING))
        self.move(really - believed, DROPPED)
        self.move(believed - really, Standing.FAILED)

    # ---- what always holds -------------------------------------------------------------------

    def check(self, in_flight: Collection[int] | None = None) -> None:
        """Raises if something does not hold that must hold after every move. ``in_flight``: as in ``mend``."""
        stepping, resetting = set(self.ids_in(STEPPING, DROPPED)), set(self.ids_in(RESETTING, Standing.RESTORING))
        retrying, failed = set(self.ids_in(Standing.RETRYING)), set(self.ids_in(Standing.FAILED))
        fresh = set(self.ids_in(Standing.UNBUILT, Standing.BUILT))
        rules = {
            "every env is in exactly one place": list(self._standing_of) == list(range(len(self._envs))),
            "the envs that step or reset are those that the pool has in flight": in_flight is None
            or set(in_flight) == stepping | resetting,
            "the envs that are retried have a time for it": self.retry_at.keys() == retrying,
            "an env has one result at most": self.timesteps.keys().isdisjoint(self.errors),
            "an env steps only after its last result was returned": self.timesteps.keys().isdisjoint(stepping | fresh),
            "only failed envs have errors": self.errors.keys() <= failed,
            "every env that is ready has an observation": self.last_obs.keys() >= set(self.ids_in(READY)),
        }
        broken = [rule for rule, holds in rules.items() if not holds]
        if broken:
            raise AssertionError(f"standings: broken: {'; '.join(broken)}: {self._shown(in_flight)}")

    def _shown(self, in_flight: Collection[int] | None) -> Mapping[str, object]:
        return {
            "standings": {one: standing.name for one, standing in self._standing_of.items()},
            "in flight": in_flight,
            "retry at": self.retry_at,
            "timesteps": list(self.timesteps),
            "errors": list(self.errors),
        }
