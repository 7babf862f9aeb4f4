"""What goes to the pool of a manager, what comes back and what that means, all of it noted in the standings.

Resets that nobody has to ask for are sent here: of envs whose episodes have ended, and of those whose reset failed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError, EnvTimeoutError, WorkerDiedError
from stepmill.managers.config import ManagerSettings, ResetParams
from stepmill.managers.env_class import in_class_of_cause
from stepmill.managers.env_rows import RowReader, any_abnormal
from stepmill.managers.env_side import EnvInstructions
from stepmill.managers.managed_env import ManagedEnv
from stepmill.managers.manager_pool import ManagerPool
from stepmill.managers.standings import Standings
from stepmill.managers.states import Arrival, SavedEnv, Sending, SentResets, Standing
from stepmill.values.saved_states import SavedStates


class Traffic:
    """Sends actions and resets, and takes what comes of them. A manager has a new one in each launch.

    Args:
        pool: Where the envs run.
        standings: Where they stand.
        envs: What else is known about them.
        settings: Those of the manager.
        resets_abnormal: Whether an env whose step was abnormal is reset at once, rather than left to the caller.

    Attributes:
        runs_beside_the_caller: Whether envs step and reset while the caller does something else.
        fatal: The error of a reset that failed for good. The manager has to be closed.
    """

    def __init__(
        self,
        pool: ManagerPool,
        standings: Standings,
        envs: list[ManagedEnv],
        settings: ManagerSettings,
        resets_abnormal: bool,
    ) -> None:
        self.pool = pool
        self.runs_beside_the_caller = pool.runs_beside_the_caller
        self.fatal: EnvError | None = None
        self._standings = standings
        self._envs = envs
        self._renews = settings.retry_type == "renew"
        self._read = ArrivalReader(pool.rows, standings, envs, settings, resets_abnormal)

    @property
    def is_over(self) -> bool:
        """Whether nothing is in flight, and no reset is to be tried again: nothing more comes by itself."""
        return not (self._standings.retry_at or self.pool.in_flight_count)

    # ---- out ---------------------------------------------------------------------------------

    def send_actions(self, ids: list[int], actions: list[Any]) -> None:
        """Sends actions to envs that are ready."""
        self._standings.sending = Sending(ids)
        self.pool.send_actions(ids, actions)
        self._standings.note_sent()

    def send_resets(
        self,
        ids: Sequence[int],
        params: ResetParams = MappingProxyType({}),
        *,
        renew: bool = False,
        automatic: bool = False,
    ) -> None:
        """Sends resets to envs that have nothing in flight. Nothing changes before they are sent.

        Args:
            ids: Which envs.
            params: The new parameters.
            renew: Whether the envs are built anew first.
            automatic: Whether the caller did not ask for them: new seeds wait for a reset that the caller asks for.
        """
        groups: dict[EnvInstructions | None, list[int]] = {}
        for one in ids:
            groups.setdefault(self._envs[one].instructions(renew), []).append(one)
        for instructions, group in groups.items():
            seeds = [self._envs[one].seed_for_reset(renew, automatic) for one in group]
            new = {one: param for one in group if (param := params.get(one)) is not None}
            episodes = {} if automatic else {one: self._episodes_seen(one) for one in group}
            self._standings.sending = Sending(group, SentResets(seeds, automatic, new, episodes))
            sent = [new.get(one, self._envs[one].params) for one in group]
            self.pool.send_resets(group, seeds, sent, instructions, renew)
            self._standings.note_sent()

    def send_restore(self, ids: Sequence[int], states: SavedStates, saved: Sequence[SavedEnv]) -> None:
        """Gives envs that have nothing in flight saved states."""
        self._standings.sending = Sending(ids, saved=saved)
        self.pool.send_restore(ids, states)
        self._standings.note_sent()

    def _episodes_seen(self, env_id: int) -> int:
        """How many episodes have ended, without one whose end no call has returned."""
        last = self._standings.timesteps.get(env_id)
        unseen = last is not None and last.done and not any_abnormal(last.info)
        return self._envs[env_id].episodes - unseen

    def _reset_ended(self) -> None:
        """Resets envs whose episodes have ended."""
        if ended := self._standings.ids_in(Standing.ENDED):
            self.send_resets(ended, automatic=True)

    def _retry_resets(self) -> None:
        """Tries resets again that failed, if their time has come."""
        now = time.monotonic()
        due = sorted(one for one, when in self._standings.retry_at.items() if when <= now)
        for automatic in (False, True):
            alike = [one for one in due if self._envs[one].is_automatic is automatic]
            self.send_resets(alike, renew=self._renews, automatic=automatic)

    # ---- back --------------------------------------------------------------------------------

    def gather(self, enough: int, at_least: int, timeout: float | None, steps_only: bool = False) -> bool:
        """Takes what is ready, as the pool's ``recv_some`` does, or less: callers ask again.

        Resets envs that have ended, and retries resets that failed. Returns whether anything came.
        """
        if self._standings.retry_at:
            at_least, timeout = 0, self._until_retry(timeout)
        self.pool.receive(enough, at_least, timeout, steps_only)
        has_come = self.pool.batch is not None
        if has_come:
            self._take()
        if self._standings.retry_at and self.fatal is None:
            self._retry_resets()
        return has_come

    def _until_retry(self, timeout: float | None) -> float:
        """Seconds until a reset is to be tried again, or time is up. Sleeps for them if nothing is in flight."""
        left = max(0.0, min(self._standings.retry_at.values()) - time.monotonic())
        if timeout is not None:
            left = min(left, timeout)
        if not self.pool.in_flight_count:
            time.sleep(left)  # what retry_waiting_time asks for: there is nothing to wait for but the time
        return left

    def _take(self) -> None:
        """Notes what the pool's batch means, and acts on it."""
        self._standings.arrival = arrival = self._read(self.pool.batch)
        self.pool.batch = None
        self.fatal = arrival.fatal
        self._standings.note_arrival()
        if arrival.has_ended and arrival.fatal is None:
            self._reset_ended()

    # ---- after an exception ------------------------------------------------------------------

    def mend(self) -> None:
        """Finishes what an exception interrupted."""
        arrival = self._standings.arrival
        if arrival is not None:
            self.pool.batch = None  # this is what it means
        self._standings.mend(self.pool.in_flight_ids)
        if arrival is not None:
            self.fatal = arrival.fatal
        if self.pool.batch is not None and self.fatal is None:
            self._take()
        if self.fatal is None:
            self._standings.reconcile(self.pool.in_flight_ids)
            self._reset_ended()


# ---- what a batch means --------------------------------------------------------------------------


@dataclass(frozen=True)
class ArrivalReader:
    """Reads batches. It changes nothing: ``Standings.note_arrival`` does.

    Args:
        rows: Reads the rows of a batch.
        standings: Where the envs stand.
        envs: What else is known about them.
        settings: Those of the manager.
        resets_abnormal: Whether an env whose step was abnormal is reset at once, rather than left to the caller.
    """

    rows: RowReader
    standings: Standings
    envs: list[ManagedEnv]
    settings: ManagerSettings
    resets_abnormal: bool

    def __call__(self, batch: Any) -> Arrival:
        rows = self.rows(batch)
        timesteps = dict(zip(rows.ids, rows.timesteps, strict=True))
        arrival = Arrival(rows.ids, rows.stored_obs)
        for one, fault in rows.faults.items():
            del timesteps[one]
            self._read_failure(one, in_class_of_cause(fault.error()), arrival)
        # Nearly all rows are plain steps, and nothing is done for each of them.
        if not self.standings.all_in(Standing.STEPPING, timesteps):
            for one in [one for one in timesteps if self.standings[one] is not Standing.STEPPING]:
                del timesteps[one]
                if self.standings[one] is Standing.RESETTING:
                    arrival.failures[one] = 0
                elif self.standings[one] is Standing.RESTORING:
                    arrival.standings[one] = self.envs[one].saved_standing
                else:
                    arrival.standings[one] = Standing.FAILED
        for row in rows.special:
            if (one := rows.ids[row]) in timesteps:
                self._read_special(one, timesteps[one], arrival)
        arrival.timesteps = timesteps
        return arrival

    def _read_special(self, env_id: int, timestep: BaseEnvTimestep, arrival: Arrival) -> None:
        """A step that may be abnormal, or the end of an episode."""
        if any_abnormal(timestep.info):
            standing = Standing.ENDED if self.resets_abnormal else Standing.FAILED
        elif timestep.done:
            arrival.episodes[env_id] = episodes = self.envs[env_id].episodes + 1
            if episodes >= self.settings.episode_num:
                standing = Standing.DONE
            else:
                standing = Standing.ENDED if self.settings.auto_reset else Standing.NEEDS_RESET
        else:
            return
        arrival.standings[env_id] = standing
        arrival.has_ended |= standing is Standing.ENDED

    def _read_failure(self, env_id: int, error: EnvError, arrival: Arrival) -> None:
        """A step or a reset that failed."""
        arrival.lost_worker |= isinstance(error, WorkerDiedError | EnvTimeoutError)
        if self.standings[env_id] is not Standing.RESETTING:
            arrival.standings[env_id] = Standing.FAILED
            if self.standings[env_id] in (Standing.STEPPING, Standing.RESTORING):
                arrival.errors[env_id] = error
            return
        arrival.standings[env_id] = Standing.RETRYING
        failures = arrival.failures[env_id] = self.envs[env_id].failures + 1
        if failures > self.settings.max_retry:
            error.add_note(f"the reset of env {env_id} failed {failures} times, and the manager is closed")
            arrival.fatal = arrival.fatal or error
        arrival.retry_at[env_id] = time.monotonic() + self.settings.retry_waiting_time
