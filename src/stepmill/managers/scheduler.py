"""How long a call of a manager waits, and what it returns.

The way of one action: ``Scheduler.step`` checks it, ``Traffic`` sends it, ``ManagerPool`` hands it to the pool, whose
workers step the env. The way back: ``ManagerPool`` receives a batch, ``RowReader`` makes timesteps of it,
``ArrivalReader`` says what they mean for their envs, ``Standings`` notes that, ``Scheduler.step`` returns them.

Nothing runs in the background: what has become ready is looked at when the caller asks for something.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ClosedError, EnvError, InFlightError, InputError, UsageError
from stepmill.managers.calls import OneCallAtATime, exclusive
from stepmill.managers.config import EnvRecipe, ManagerSettings, ResetParams, read_ids
from stepmill.managers.env_class import in_class_of_cause
from stepmill.managers.env_rows import with_tensors
from stepmill.managers.env_side import EnvSpaces
from stepmill.managers.managed_env import ManagedEnv, read_saved
from stepmill.managers.manager_pool import ManagerPool
from stepmill.managers.standings import Standings
from stepmill.managers.states import EnvState, Handover, Standing
from stepmill.managers.traffic import Traffic
from stepmill.registry.factories import close_quietly
from stepmill.values.saved_states import SavedStates

# A call that waits for steps looks this often at what has come: an env that ended is reset beside the others, a reset
# that failed is tried again. To look at each row as it comes would wake the caller on a CPU that the workers need.
_LOOK_EVERY_S = 0.01

_RESETTING = (Standing.RESETTING, Standing.RETRYING, Standing.RESTORING)  # they come by themselves


class Scheduler(OneCallAtATime):
    """Steps and resets the envs of a manager. ``BaseEnvManager`` is what users see of it.

    It is an object of its own inside a manager, not its base class: a manager looks up names that it does not know in
    its envs, and Python finds attributes of such objects more slowly.

    Args:
        manager: The manager itself. It is closed when a reset fails for good; not kept alive.
        recipes: One per env.
        settings: How the envs are run.
        backend: Where they are: "inline", "process" or "ray".
        resets_abnormal: Whether an env whose step was abnormal is reset at once, rather than left to the caller.
    """

    def __init__(
        self, manager: Any, recipes: list[EnvRecipe], settings: ManagerSettings, backend: str, resets_abnormal: bool
    ) -> None:
        super().__init__()
        self._manager = weakref.ref(manager)
        self._name = type(manager).__name__
        self._recipes = recipes
        self._settings = settings
        self._backend = backend
        self._resets_abnormal = resets_abnormal
        self._closes_itself = False
        self._traffic: Traffic | None = None  # while it is launched
        self.env_num = len(recipes)
        self.envs = [ManagedEnv() for _ in recipes]
        self.standings = Standings(self.envs)

    def __repr__(self) -> str:
        """The manager's class, and how many envs."""
        return f"{self._name}(env_num={self.env_num}{', closed' if self.closed else ''})"

    # ---- life --------------------------------------------------------------------------------

    @exclusive
    def open(self) -> EnvSpaces:
        """Builds the envs, which must be reset next. Returns their spaces."""
        if self._traffic is not None:
            raise UsageError(f"{self!r} is launched already: close() it first")
        self.envs = [one.relaunched() for one in self.envs]
        self.standings = standings = Standings(self.envs)
        try:
            pool = ManagerPool(self._recipes, self._settings, self._backend)
        except EnvError as error:
            raise in_class_of_cause(error) from error.__cause__
        standings.move(range(self.env_num), Standing.BUILT)
        self._traffic = Traffic(pool, standings, self.envs, self._settings, self._resets_abnormal)
        return pool.spaces

    def close(self) -> None:
        """Ends all envs, whatever they are doing. Closing twice does nothing."""
        token = object()
        try:
            self._callers[token] = None
            if not self._closes_itself:
                self._refuse_second(token)
            self._close()
        finally:
            self._callers.pop(token, None)

    def _close(self) -> None:
        pool = None if self._traffic is None else self._traffic.pool
        try:
            if pool is not None:
                pool.close()
        finally:
            if pool is None or pool.closed:  # else it refused, and nothing has changed
                # All of it or nothing: no call that a handler could interrupt comes between these.
                unbuilt = Standings(self.envs)
                self._traffic, self.standings = None, unbuilt

    def _close_and_raise(self, error: EnvError) -> None:
        """Closes the manager, since a reset failed for good."""
        self._closes_itself = True
        try:
            close_quietly(self._manager() or self)
        finally:
            self._closes_itself = False
        raise error

    @property
    def closed(self) -> bool:
        """Whether it is not launched, or closed again."""
        return self._traffic is None

    def require_launched(self) -> Traffic:
        """What goes to the pool and comes back; raises if the manager is not launched."""
        if self._traffic is None:
            raise ClosedError(f"{self!r} is not launched: call launch() first")
        return self._traffic

    @property
    def pool(self) -> ManagerPool:
        """Where the envs run; raises if the manager is not launched."""
        return self.require_launched().pool

    def check(self) -> None:
        """For tests: raises if something does not hold that must hold between calls."""
        self.standings.check(() if self.closed else self.pool.in_flight_ids)

    def _mend(self) -> None:
        if self._traffic is not None:
            self._traffic.mend()
            if self._traffic.fatal is not None:
                self._close_and_raise(self._traffic.fatal)

    # ---- steps -------------------------------------------------------------------------------

    @exclusive
    def step(self, actions: Mapping[int, Any]) -> dict[int, BaseEnvTimestep]:
        """Sends actions, waits as the settings say, and returns what is ready; raises what failed."""
        traffic = self.require_launched()
        traffic.pool.check_usable()
        ids = self._check_actions(actions)
        if ids:
            traffic.send_actions(ids, list(actions.values()))
        self._wait_for_steps(traffic)
        if not traffic.runs_beside_the_caller:  # nothing goes on meanwhile: finish it now
            self._settle_resets(traffic, range(self.env_num))
        return self._hand_over()

    def _check_actions(self, actions: Any) -> list[int]:
        if not isinstance(actions, Mapping):
            raise InputError(f"step: expected a dict from env id to action, got {actions!r}")
        if self.standings.are_ready(actions):
            return list(actions)
        ids = read_ids(list(actions), self.env_num)
        states = self.standings.states()
        wrong = [one for one in ids if not self.standings.are_ready([one])]
        shown = {one: "in flight" if one in wrong and states[one] is EnvState.RUN else states[one].name for one in ids}
        raise InFlightError(
            f"step: the envs {wrong} cannot take an action now, expected envs of ready_obs; nothing was sent: {shown}"
        )

    def _hand_over(self) -> dict[int, BaseEnvTimestep]:
        """Returns the timesteps that have come; raises the errors instead if there are any."""
        came, errors = self.standings.timesteps, self.standings.errors
        timesteps = {one: came[one] for one in sorted(came)}
        output = self._output(timesteps)
        error = EnvError.gather([errors[one] for one in sorted(errors)], output) if errors else None
        self.standings.hand_over(Handover(self._caller, timesteps, errors, error))
        if error is not None:
            raise error
        return output

    def _output(self, values: dict[int, Any]) -> dict[int, Any]:
        if self._settings.output == "numpy":
            return values
        return {one: with_tensors(value) for one, value in values.items()}

    # ---- what is ready -----------------------------------------------------------------------

    @exclusive
    def await_ready(self) -> list[int]:
        """The envs that can take an action; waits while all live envs are resetting."""
        traffic = self.require_launched()
        traffic.pool.check_usable()
        if traffic.runs_beside_the_caller and not traffic.is_over:
            self._gather(traffic, self.env_num, 0, 0.0)  # what has become ready meanwhile
        while not (ready := self.standings.ready()) and not self.standings.result_count():
            if not self._count_resets(traffic, range(self.env_num)):
                break
            self._gather(traffic, 1, 1, None)
        return ready

    def last_observations(self, ids: list[int]) -> list[Any]:
        """The last observation of each of these envs, copied: the caller may write to what it gets."""
        return self.pool.rows.pick(list(map(self.standings.last_obs.__getitem__, ids)))

    def ready_observations(self) -> dict[int, Any]:
        """The last observations of the envs that can take an action, by env id."""
        ids = self.await_ready()
        return self._output(dict(zip(ids, self.last_observations(ids), strict=True)))

    # ---- resets ------------------------------------------------------------------------------

    @exclusive
    def reset(self, params: ResetParams) -> None:
        """Resets these envs and waits for them. Results of what they have in flight are dropped."""
        traffic = self.require_launched()
        self.standings.drop(params)
        busy = (Standing.STEPPING, Standing.DROPPED, *_RESETTING)
        while not set(self.standings.ids_in(*busy)).isdisjoint(params):
            self._gather(traffic, 1, 1, None)
        traffic.send_resets(list(params), params)
        self._settle_resets(traffic, params)

    def _settle_resets(self, traffic: Traffic, ids: Iterable[int]) -> None:
        while left := self._count_resets(traffic, ids):
            self._gather(traffic, left, 1, None)

    def _count_resets(self, traffic: Traffic, ids: Iterable[int]) -> int:
        """How many of these envs have a reset or a restore in flight, or a reset that is to be tried again."""
        if traffic.is_over:
            return 0
        return len(set(self.standings.ids_in(*_RESETTING)).intersection(ids))

    # ---- saved states ------------------------------------------------------------------------

    @exclusive
    def save(self, ids: list[int], by: str | None) -> SavedStates:
        """The states of these envs, as the pool saves them, and behind each what the manager knows."""
        return self._save(ids, by)

    @exclusive
    def restore(self, given: Any, ids: list[int]) -> None:
        """Gives these envs saved states, and waits until they stand where the saved ones did."""
        self._restore(given, ids)

    @exclusive
    def fork(self, source: int, targets: list[int]) -> None:
        """Gives envs the state of another one."""
        self._restore(self._save([source], None)[0], targets)

    def _save(self, ids: list[int], by: str | None) -> SavedStates:
        traffic = self.require_launched()
        self._await_rest(traffic, "save", ids)
        states = traffic.pool.save(ids, by)
        return states.with_notes([self.envs[one].save(one, self.standings[one]) for one in ids])

    def _restore(self, given: Any, ids: list[int]) -> None:
        traffic = self.require_launched()
        states, notes = traffic.pool.check_states(given, ids).split_notes()
        saved = [read_saved(*one) for one in zip(ids, notes, strict=True)]
        self._await_rest(traffic, "restore", ids)
        traffic.send_restore(ids, states, saved)
        self._settle_resets(traffic, ids)
        if not self.standings.errors.keys().isdisjoint(ids):
            self._hand_over()

    def _await_rest(self, traffic: Traffic, call: str, ids: list[int]) -> None:
        """Waits for resets of these envs. Refuses if the caller has not got the result of their last action."""
        busy = set(self.standings.ids_in(Standing.STEPPING, Standing.DROPPED))
        wrong = sorted((busy | self.standings.timesteps.keys() | self.standings.errors.keys()).intersection(ids))
        if wrong:
            raise InFlightError(
                f"{call}: the envs {wrong} are in flight: step({{}}) returns their results. Nothing has changed"
            )
        self._settle_resets(traffic, ids)

    # ---- waiting -----------------------------------------------------------------------------

    def _wait_for_steps(self, traffic: Traffic) -> None:
        timeout = self._settings.wait_timeout
        end = None if timeout is None else time.monotonic() + timeout
        standings = self.standings
        stepping = self._count_stepping(traffic)
        enough = min(self._settings.wait_num, stepping + standings.result_count())
        while stepping:
            # Ended envs alone give the caller nothing to go on with while others are stepping.
            useful = bool(standings.errors) or any(not one.done for one in standings.timesteps.values())
            missing = max(int(enough) - standings.result_count(), 0 if useful else 1)
            left = 0.0 if end is None else max(0.0, end - time.monotonic())
            if missing == 0 and left == 0.0:
                return
            if left > 0.0:
                self._gather(traffic, stepping, 0, min(left, _LOOK_EVERY_S), steps_only=True)
            else:
                self._gather(traffic, missing, 0, _LOOK_EVERY_S, steps_only=True)
            stepping = self._count_stepping(traffic)

    def _count_stepping(self, traffic: Traffic) -> int:
        """How many envs have an action in flight."""
        in_flight = traffic.pool.in_flight_count
        stepping = self.standings.count(Standing.STEPPING) if in_flight else 0
        return stepping if stepping == in_flight else stepping + self.standings.count(Standing.DROPPED)

    def _gather(
        self, traffic: Traffic, enough: int, at_least: int, timeout: float | None, steps_only: bool = False
    ) -> None:
        """``Traffic.gather``; closes the manager if a reset failed for good."""
        has_come = traffic.gather(enough, at_least, timeout, steps_only)
        if traffic.fatal is not None:
            self._close_and_raise(traffic.fatal)
        if not has_come and traffic.is_over:  # rather than wait for ever
            raise UsageError(f"{self!r}: nothing is in flight that could arrive: {self.standings.states()}")
