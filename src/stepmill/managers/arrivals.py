"""What a batch means for the envs in it: which of them go on, have ended or have failed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError, EnvTimeoutError, WorkerDiedError
from stepmill.managers.config import ManagerSettings
from stepmill.managers.env_class import in_class_of_cause
from stepmill.managers.env_rows import RowReader, any_abnormal
from stepmill.managers.managed_env import ManagedEnv
from stepmill.managers.moves import Arrival
from stepmill.managers.standings import Standings
from stepmill.managers.states import Standing


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
            if self.standings[env_id] is Standing.STEPPING:
                arrival.errors[env_id] = error
            return
        arrival.standings[env_id] = Standing.RETRYING
        failures = arrival.failures[env_id] = self.envs[env_id].failures + 1
        if failures > self.settings.max_retry:
            error.add_note(f"the reset of env {env_id} failed {failures} times, and the manager is closed")
            arrival.fatal = arrival.fatal or error
        arrival.retry_at[env_id] = time.monotonic() + self.settings.retry_waiting_time
