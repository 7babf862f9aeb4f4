"""The core of the env managers: where each env stands, and when a call has waited long enough.

The pool does the work: it steps and resets envs, in worker processes or in this one, and every action gets exactly one
result. Nothing here runs in the background: what became ready is looked at when the caller asks for something.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import (
    ClosedError,
    EnvError,
    EnvIdError,
    EnvTimeoutError,
    InputError,
    StepmillError,
    UsageError,
    WorkerDiedError,
)
from stepmill.factories import close_quietly
from stepmill.managers.config import DEFAULTS, EnvRecipe, ManagerSettings
from stepmill.managers.envs import EnvSpaces
from stepmill.managers.records import EnvRecord
from stepmill.managers.rows import RowReader
from stepmill.managers.states import EnvState
from stepmill.pool.python_pool import Preparation
from stepmill.pool.rows import is_abnormal

__all__ = ["ManagerCore", "mends"]


Manager = TypeVar("Manager", bound="ManagerCore")
P = ParamSpec("P")
R = TypeVar("R")


def mends(method: Callable[Concatenate[Manager, P], R]) -> Callable[Concatenate[Manager, P], R]:
    """Makes a method that Ctrl-C may have left half done set that right when one is called the next time."""

    @functools.wraps(method)
    def call(self: Manager, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._torn and self._pool is not None:
            self._mend()
        try:
            return method(self, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            self._torn = True
            raise

    return call


class ManagerCore:
    """The state of the envs of a manager, and what moves it on. ``BaseEnvManager`` is what users see of it."""

    _backend = "inline"
    _defaults: Mapping[str, Any] = DEFAULTS
    # Whether an env whose step was abnormal is reset at once, rather than left to the caller.
    _resets_abnormal = False

    def __init__(self, recipes: list[EnvRecipe], settings: ManagerSettings) -> None:
        self._recipes = recipes
        self._settings = settings
        self._pool: Any = None
        self._ref: Any = None
        self._spaces: EnvSpaces | None = None
        self._read_rows: RowReader | None = None
        self._records = [EnvRecord() for _ in recipes]
        self._forget()

    def _forget(self) -> None:
        """As before the first launch, but for what the caller asked for."""
        self._records = [one.launched() for one in self._records]
        self._states = dict.fromkeys(range(self.env_num), EnvState.VOID)
        self._halted = set(self._states)  # not in state RUN
        self._ready: set[int] = set()  # can take an action
        self._observations: dict[int, Any] = {}  # the latest of each
        self._stepping: set[int] = set()  # an action is in flight
        self._resetting: set[int] = set()  # a reset is in flight, or to be tried again
        self._due: dict[int, float] = {}  # when a reset that failed is tried again
        self._voided: set[int] = set()  # whose results in flight come to nothing
        self._arrived: dict[int, BaseEnvTimestep] = {}  # results that no call has returned yet
        self._failed: dict[int, EnvError] = {}  # of steps, that no call has raised yet
        self._torn = False  # a call was interrupted

    def _move(self, ids: Iterable[int], state: EnvState) -> None:
        """Envs are in another state now."""
        for one in ids:
            self._states[one] = state
            if state is EnvState.RUN:
                self._halted.discard(one)
            else:
                self._halted.add(one)

    def close(self) -> None:
        """Ends all envs and frees everything, whatever they are doing. Closing twice does nothing."""
        pool, self._pool = self._pool, None
        ref, self._ref = self._ref, None
        self._move(self._states, EnvState.VOID)
        self._ready.clear()
        if ref is not None:
            close_quietly(ref)
        if pool is not None:
            pool.close()

    def __repr__(self) -> str:
        """The class, and how many envs."""
        return f"{type(self).__name__}(env_num={self.env_num}{', closed' if self.closed else ''})"

    @property
    def env_num(self) -> int:
        """How many envs there are."""
        return len(self._recipes)

    @property
    def closed(self) -> bool:
        """Whether it is not launched, or closed again."""
        return self._pool is None

    def _require_open(self) -> None:
        if self._pool is None:
            raise ClosedError(f"{self!r} is not launched: call launch() first")

    def _check_ids(self, ids: Any) -> list[int]:
        if hasattr(ids, "__index__") and not getattr(ids, "shape", ()):
            ids = [ids]
        if not isinstance(ids, Iterable):
            raise EnvIdError(f"env id: expected a whole number or a list of them, got {ids!r}")
        out: dict[int, None] = {}
        for one in ids:
            if isinstance(one, bool) or not hasattr(one, "__index__"):
                raise EnvIdError(f"env id: expected a whole number, got {one!r}")
            env_id = int(one)
            if not 0 <= env_id < self.env_num:
                raise EnvIdError(f"env id {one} is out of range [0, {self.env_num})")
            if env_id in out:
                raise EnvIdError(f"env id {one} is given twice")
            out[env_id] = None
        return list(out)

    def _mend(self) -> None:
        """After an interrupted call: envs whose results were lost, or whose actions nobody noted, wait for a reset."""
        flying = set(self._pool.in_flight_ids)
        known = self._stepping | self._resetting
        self._torn = False
        lost = (known - flying - self._due.keys()) | (flying - known)
        self._move(lost, EnvState.ERROR)
        for some in (self._ready, self._resetting, self._stepping):
            some -= lost
        self._stepping.update(flying - known)
        self._voided.update(flying - known)

    # ---- resets ------------------------------------------------------------------------------

    def _send_resets(self, ids: Sequence[int], renew: bool = False, automatic: bool = False) -> None:
        """Sends resets of envs that have nothing in flight.

        Args:
            ids: Which.
            renew: They are built anew first.
            automatic: Nobody asked for them: new seeds wait for a reset that somebody does.
        """
        groups: dict[Preparation | None, list[int]] = {}
        for one in ids:
            self._records[one].is_automatic = automatic
            groups.setdefault(self._records[one].preparation(renew), []).append(one)
        for prepare, group in groups.items():
            seeds = [self._records[one].seed_for_reset(renew) for one in group]
            params = [self._records[one].params or None for one in group]
            try:
                self._pool.send_reset(group, seeds, params, prepare=prepare)
            except StepmillError:
                raise
            except Exception as error:  # of pickling
                raise InputError(f"reset: expected parameters that can be pickled, got {params}: {error}") from error
            # Nothing is changed before it is sent.
            self._resetting.update(group)
            self._ready.difference_update(group)
            self._move(group, EnvState.RESET)
            for one, seed in zip(group, seeds, strict=True):
                self._records[one].reset_is_sent(seed)

    def _settle_resets(self, ids: Iterable[int]) -> None:
        wanted = set(ids)
        while left := len(wanted & self._resetting):
            self._gather(left, 1, None)

    # ---- waiting -----------------------------------------------------------------------------

    def _wait_for_steps(self) -> None:
        timeout = self._settings.wait_timeout
        end = None if timeout is None else time.monotonic() + timeout
        enough = min(self._settings.wait_num, len(self._stepping) + len(self._arrived) + len(self._failed))
        while self._stepping:
            # Only ended ones are nothing to go on with, as long as others run.
            useful = bool(self._failed) or any(not one.done for one in self._arrived.values())
            missing = max(int(enough) - len(self._arrived) - len(self._failed), 0 if useful else 1)
            left = 0.0 if end is None else max(0.0, end - time.monotonic())
            if missing == 0 and left == 0.0:
                return
            if left > 0.0:
                self._gather(len(self._stepping), missing, left, steps_only=True)
            else:
                self._gather(missing, missing, None, steps_only=True)

    @mends
    def _await_ready(self) -> list[int]:
        self._require_open()
        if self._backend != "inline" and (self._stepping or self._resetting):
            self._gather(self.env_num, 0, 0.0)  # what has become ready meanwhile
        while self._resetting and not (self._ready or self._arrived or self._failed):
            self._gather(1, 1, None)
        return sorted(self._ready)

    def _gather(self, enough: int, at_least: int, timeout: float | None, steps_only: bool = False) -> None:
        """Takes what is ready, as ``recv_some`` of the pool has it, or less: callers ask again.

        Sees to resets that failed, and to envs that ended.
        """
        if self._due:
            at_least, timeout = 0, self._until_due(timeout)
        batch = self._pool.recv_some(enough, at_least, timeout, steps_only)
        if batch is not None:
            self._take(batch)
        elif at_least > 0 and not self._due:
            raise UsageError(
                f"{self!r}: nothing is in flight that could come: {self._states}"
            )  # rather than wait for ever
        if self._due:
            self._try_again()

    # ---- results -----------------------------------------------------------------------------

    def _take(self, batch: Any) -> None:
        assert self._read_rows is not None
        rows = self._read_rows(batch)
        came = dict(zip(rows.ids, rows.timesteps, strict=True))
        for one, fault in rows.faults.items():
            del came[one]
            self._take_failure(one, fault.error())
        self._observations.update(zip(rows.ids, rows.observations, strict=True))
        # Nearly all rows are plain steps, and nothing is done for each of them.
        for one in self._resetting & came.keys():
            del came[one]
            self._end_reset(one)
        self._stepping.difference_update(came)
        for one in self._voided & came.keys():
            del came[one]
            self._voided.discard(one)
        self._arrived.update(came)
        ended = [one for row in rows.special if (one := rows.ids[row]) in came and self._ends(one, came[one])]
        if ended:
            self._send_resets(sorted(ended), automatic=True)

    def _end_reset(self, env_id: int) -> None:
        self._move([env_id], EnvState.RUN)
        if env_id not in self._arrived:  # the end before it is for `step` to return first
            self._ready.add(env_id)
        self._resetting.discard(env_id)
        self._records[env_id].failures = 0

    def _ends(self, env_id: int, timestep: BaseEnvTimestep) -> bool:
        """Notes what a step that is not like the others means for its env; whether it is to be reset."""
        if is_abnormal(timestep.info):
            self._move([env_id], EnvState.ERROR)
            return self._resets_abnormal
        if not timestep.done:
            return False
        record = self._records[env_id]
        record.episodes += 1
        if record.episodes >= self._settings.episode_num:
            self._move([env_id], EnvState.DONE)
        elif not self._settings.auto_reset:
            self._move([env_id], EnvState.NEED_RESET)
        else:
            return True
        return False

    def _take_failure(self, env_id: int, error: EnvError) -> None:
        if isinstance(error, WorkerDiedError | EnvTimeoutError):
            for one in self._records:
                one.is_told = False  # others were lost with it, and are built anew
        if env_id in self._stepping:
            self._stepping.discard(env_id)
            self._move([env_id], EnvState.ERROR)
            if env_id in self._voided:
                self._voided.discard(env_id)
            else:
                self._failed[env_id] = error
            return
        record = self._records[env_id]
        record.reset_failed()
        if record.failures > self._settings.max_retry:
            close_quietly(self)
            error.add_note(f"the reset of env {env_id} failed {record.failures} times, and the manager is closed")
            raise error
        self._due[env_id] = time.monotonic() + self._settings.retry_waiting_time

    # ---- resets that failed ------------------------------------------------------------------

    def _until_due(self, timeout: float | None) -> float:
        """Seconds until a reset is to be tried again, or the time is over. Passes them where nothing is in flight."""
        left = max(0.0, min(self._due.values()) - time.monotonic())
        if timeout is not None:
            left = min(left, timeout)
        if not self._pool.in_flight_count:
            time.sleep(left)  # what retry_waiting_time asks for: there is nothing to wait for but the time
        return left

    def _try_again(self) -> None:
        now = time.monotonic()
        due = sorted(one for one, when in self._due.items() if when <= now)
        for one in due:
            del self._due[one]
        renew = self._settings.retry_type == "renew"
        for automatic in (False, True):
            alike = [one for one in due if self._records[one].is_automatic is automatic]
            self._send_resets(alike, renew, automatic)
