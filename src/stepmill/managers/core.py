"""The core of the env managers: what is sent when, what a batch means, and when a call has waited long enough.

The pool does the work: it steps and resets envs, in worker processes or in this one, and every action gets exactly one
result. ``Standings`` knows where each env stands. Nothing here runs in the background: the core looks at what became
ready when the caller asks for something.

It is an object of its own inside of a manager, not its base class: a manager looks up names that it does not know in
its envs, and Python finds attributes of such objects more slowly.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

from stepmill import _native
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import (
    ActionError,
    ClosedError,
    ConcurrentUseError,
    EnvError,
    EnvIdError,
    EnvTimeoutError,
    InFlightError,
    InputError,
    StepmillError,
    UsageError,
    WorkerDiedError,
)
from stepmill.factories import close_quietly
from stepmill.managers.actions import stack_actions, stack_open_actions
from stepmill.managers.config import EnvRecipe, ManagerSettings
from stepmill.managers.envs import EnvSpaces, open_pool, spaces_of
from stepmill.managers.managed_env import ManagedEnv
from stepmill.managers.moves import Arrival, Handover, Sending, SentResets
from stepmill.managers.rows import RowReader, tells_abnormal, with_tensors
from stepmill.managers.standings import Standings
from stepmill.managers.states import EnvState, Standing
from stepmill.pool.host import Preparation
from stepmill.pool.user_code import try_or
from stepmill.uncopyable import Uncopyable

__all__ = ["ManagerCore"]

P = ParamSpec("P")
R = TypeVar("R")
# A call that waits for steps looks this often at what came meanwhile: an env that ended is reset beside the others, a
# reset that failed is tried again. Each row as it comes would wake the caller on a core that the workers need.
_LOOK_S = 0.01

Params = Mapping[int, Mapping[str, Any] | None]  # of resets, by env id; None: the same as last time


def _mends(method: Callable[Concatenate[ManagerCore, P], R]) -> Callable[Concatenate[ManagerCore, P], R]:
    """Makes a method refuse a second call at once, and first do what an exception kept the last call from doing.

    Ctrl-C and signal handlers may raise anywhere in there: see ``moves.py``.
    """

    @functools.wraps(method)
    def call(self: ManagerCore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        token = object()
        is_inside = False
        try:
            self._callers[token] = None
            self._refuse_second(token)
            is_inside = True
            if self._torn and self.pool is not None:
                self._mend()
            result = method(self, *args, **kwargs)
            self._callers.pop(token)  # not in a `finally`: what is raised there would lose the result
            return result
        except BaseException as error:
            handover = self.standings.handover if is_inside else None
            if handover is not None and handover.call is not token:
                handover = None
            if is_inside:
                self._torn = True
            if handover is not None:
                handover.is_lost = True  # a handler may raise here, too, in place of an error that carries it
            self._callers.pop(token, None)
            if handover is not None and handover.error is error:
                handover.is_lost = False
            raise

    return call


class ManagerCore(Uncopyable):
    """Steps and resets the envs of a manager. ``BaseEnvManager`` is what users see of it.

    Args:
        manager: The manager itself. It is closed when a reset fails for good; not kept alive.
        recipes: One per env.
        settings: How the envs are run.
        backend: Where they are: "inline" or "process".
        resets_abnormal: Whether an env whose step was abnormal is reset at once, rather than left to the caller.
    """

    def __init__(
        self, manager: Any, recipes: list[EnvRecipe], settings: ManagerSettings, backend: str, resets_abnormal: bool
    ) -> None:
        self._manager = weakref.ref(manager)
        self._name = type(manager).__name__
        self._recipes = recipes
        self._settings = settings
        self._backend = backend
        self._resets_abnormal = resets_abnormal
        self._read_rows: RowReader | None = None
        self._is_open = False  # the envs take actions that their space does not describe
        self._callers: dict[object, None] = {}  # the first is inside, others are being refused
        self._gives_up = False  # it closes itself
        self._torn = False  # a call raised something, perhaps in the middle of a move
        self._batch: Any = None  # that the pool gave away, until it is known what it means
        self.pool: Any = None
        self.envs = [ManagedEnv() for _ in recipes]
        self.standings = Standings(self.envs)

    # ---- life --------------------------------------------------------------------------------

    @_mends
    def open(self) -> EnvSpaces:
        """Builds the envs, which are to be reset now. Returns what spaces they have."""
        if self.pool is not None:
            raise UsageError(f"{self!r} is launched already: close() it first")
        self.envs = [one.launched() for one in self.envs]
        self.standings = Standings(self.envs)
        self._torn, self._batch = False, None
        self.pool = open_pool(self._recipes, self._settings, self._backend)
        try:
            self.standings.move(range(self.env_num), Standing.BUILT)
            spaces: EnvSpaces = self.pool.use(self.pool.host.apply, spaces_of, [0])[0]
            reward_shape = getattr(spaces.reward, "shape", None) or ()
            self._read_rows = RowReader(
                self.pool.host.observation, self.pool.host.num_players, reward_shape, self.env_num
            )
            self._is_open = spaces.are_open
        except BaseException:
            with contextlib.suppress(Exception):
                self._close()
            raise
        return spaces

    def refuse_others(self) -> None:
        """Raises where a call is inside."""
        if self._callers:
            self._refuse_second(object())

    def close(self) -> None:
        """Ends all envs, whatever they are doing. Closing twice does nothing."""
        token = object()
        try:
            self._callers[token] = None
            if not self._gives_up:
                self._refuse_second(token)
            self._close()
        finally:
            self._callers.pop(token, None)

    def _close(self) -> None:
        pool = self.pool
        try:
            if pool is not None:
                pool.close()
        finally:
            if pool is None or pool.closed:  # else it refused, and nothing has changed
                # All of it or nothing: no call that a handler could interrupt comes between these.
                unbuilt = Standings(self.envs)
                self.pool, self._batch, self.standings = None, None, unbuilt

    @property
    def _caller(self) -> object:
        """The call that is inside."""
        return list(self._callers)[0]  # noqa: RUF015  (in one go: another thread's may come and leave)

    def _refuse_second(self, token: object) -> None:
        if self._caller is not token:
            raise ConcurrentUseError(
                f"{self!r}: another call is inside, of another thread or the one that a signal handler interrupts: a "
                "manager serves one at a time. Use a lock, or wait until the call has returned"
            )

    def __repr__(self) -> str:
        """The manager's class, and how many envs."""
        return f"{self._name}(env_num={self.env_num}{', closed' if self.closed else ''})"

    @property
    def env_num(self) -> int:
        """How many envs there are."""
        return len(self._recipes)

    @property
    def closed(self) -> bool:
        """Whether it is not launched, or closed again."""
        return self.pool is None

    def require_open(self) -> None:
        """Raises where it is not launched."""
        if self.pool is None:
            raise ClosedError(f"{self!r} is not launched: call launch() first")

    def check_ids(self, ids: Any) -> list[int]:
        """Env ids, from one or several, each in range and given once."""
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

    def check(self) -> None:
        """For tests: raises where something does not hold that does between calls."""
        self.standings.check(() if self.pool is None else self.pool.in_flight_ids)

    def _mend(self) -> None:
        """Goes on with what an exception interrupted."""
        arrival = self.standings.arrival
        if arrival is not None:
            self._batch = None  # that is what it means
        self.standings.mend(self.pool.in_flight_ids)
        if arrival is not None and arrival.given_up is not None:
            self._give_up(arrival.given_up)
        if self._batch is not None:
            self._take(self._batch)
        self.standings.reconcile(self.pool.in_flight_ids)
        self._reset_ended()
        self._torn = False

    # ---- steps -------------------------------------------------------------------------------

    @_mends
    def step(self, actions: Mapping[int, Any]) -> dict[int, BaseEnvTimestep]:
        """Sends actions, waits as the settings say, and returns what is ready; raises what failed."""
        self.require_open()
        ids = self._check_actions(actions)
        if ids:
            batch, objects = self._read_actions(ids, list(actions.values()))
            self.standings.sending = Sending(ids)
            self.pool.send(batch, ids, objects)
            self.standings.note_sent()
        self._wait_for_steps()
        if self._backend == "inline":  # nothing goes on beside the caller: be done with it
            self._settle_resets(range(self.env_num))
        came, errors = self.standings.timesteps, self.standings.errors
        timesteps = {one: came[one] for one in sorted(came)}
        output = self._output(timesteps)
        error = EnvError.gather([errors[one] for one in sorted(errors)], output) if errors else None
        self.standings.hand_over(Handover(self._caller, timesteps, errors, error))
        if error is not None:
            raise error
        return output

    def _read_actions(self, ids: list[int], actions: list[Any]) -> tuple[Any, dict[int, Any] | None]:
        """A batch, and by env id what it has no room for; None: the pool looks for that itself."""
        if not self._is_open:
            return stack_actions(self.pool.host.action, actions, self.pool.host.num_players), None

        def read() -> tuple[Any, dict[int, Any]]:
            batch, objects = stack_open_actions(self.pool.host.action, actions)
            return batch, {ids[row]: self.pool.host.pack_objects(parts) for row, parts in objects.items()}

        def refuse(failure: BaseException) -> NoReturn:
            if isinstance(failure, StepmillError):
                raise failure
            text = f"step: expected actions that can be copied and pickled, got {actions}: {failure}"
            raise ActionError(text) from failure

        return try_or(read, refuse)

    def _check_actions(self, actions: Any) -> list[int]:
        if not isinstance(actions, Mapping):
            raise InputError(f"step: expected a dict from env id to action, got {actions!r}")
        if self.standings.are_ready(actions):
            return list(actions)
        ids = self.check_ids(list(actions))
        states = self.standings.states()
        wrong = [one for one in ids if not self.standings.are_ready([one])]
        shown = {one: "in flight" if one in wrong and states[one] is EnvState.RUN else states[one].name for one in ids}
        raise InFlightError(
            f"step: the envs {wrong} cannot take an action now, expected envs of ready_obs; nothing was sent: {shown}"
        )

    def _output(self, values: dict[int, Any]) -> dict[int, Any]:
        if self._settings.output == "numpy":
            return values
        return {one: with_tensors(value) for one, value in values.items()}

    # ---- what is ready -----------------------------------------------------------------------

    @_mends
    def await_ready(self) -> list[int]:
        """The envs that can take an action; waits while all live envs are resetting."""
        self.require_open()
        if self._backend != "inline" and (self.pool.in_flight_count or self.standings.due):
            self._gather(self.env_num, 0, 0.0)  # what has become ready meanwhile
        while not (ready := self.standings.ready()) and not self.standings.waiting():
            if not self._under_reset(range(self.env_num)):
                break
            self._gather(1, 1, None)
        return ready

    def latest(self, ids: list[int]) -> list[Any]:
        """The last observation of each, a copy: nobody else has what is handed out."""
        assert self._read_rows is not None
        return self._read_rows.pick(list(map(self.standings.places.__getitem__, ids)))

    def ready_observations(self) -> dict[int, Any]:
        """Those of the envs that can take an action, by env id."""
        ids = self.await_ready()
        return self._output(dict(zip(ids, self.latest(ids), strict=True)))

    # ---- resets ------------------------------------------------------------------------------

    @_mends
    def reset(self, params: Params) -> None:
        """Resets these envs and waits for them. What they have in flight comes to nothing."""
        self.require_open()
        self.standings.drop(params)
        while not self._in_flight_or_due.isdisjoint(params):
            self._gather(1, 1, None)
        self._send_resets(list(params), params)
        self._settle_resets(params)

    @property
    def _in_flight_or_due(self) -> set[int]:
        flying = (Standing.STEPPING, Standing.DROPPED, Standing.RESETTING)
        return set(self.standings.among(*flying, Standing.RETRYING))

    def _send_resets(
        self, ids: Sequence[int], params: Params = MappingProxyType({}), *, renew: bool = False, automatic: bool = False
    ) -> None:
        """Sends resets of envs that have nothing in flight. Nothing is changed before they are sent.

        Args:
            ids: Which envs.
            params: Those that are new.
            renew: Whether the envs are built anew first.
            automatic: Whether nobody asked for them: new seeds wait for a reset that somebody asks for.
        """
        groups: dict[Preparation | None, list[int]] = {}
        for one in ids:
            groups.setdefault(self.envs[one].preparation(renew), []).append(one)
        for prepare, group in groups.items():
            seeds = [self.envs[one].seed_for_reset(renew, automatic) for one in group]
            given = {one: param for one in group if (param := params.get(one)) is not None}
            episodes = {} if automatic else {one: self._episodes_seen(one) for one in group}
            self.standings.sending = Sending(group, SentResets(seeds, automatic, given, episodes))
            sent = [dict(given.get(one, self.envs[one].params)) or None for one in group]
            self.pool.send_reset(group, seeds, sent, preparation=prepare)
            self.standings.note_sent()

    def _episodes_seen(self, env_id: int) -> int:
        """The episodes that have ended, without one of which no call has returned the end."""
        last = self.standings.timesteps.get(env_id)
        unseen = last is not None and last.done and not tells_abnormal(last.info)
        return self.envs[env_id].episodes - unseen

    def _reset_ended(self) -> None:
        """Resets envs whose episodes have ended."""
        if ended := self.standings.among(Standing.ENDED):
            self._send_resets(ended, automatic=True)

    def _settle_resets(self, ids: Iterable[int]) -> None:
        while left := self._under_reset(ids):
            self._gather(left, 1, None)

    def _under_reset(self, ids: Iterable[int]) -> int:
        """How many of these envs have a reset in flight, or one that is to be tried again."""
        if not (self.pool.in_flight_count or self.standings.due):
            return 0
        return len(set(self.standings.among(Standing.RESETTING, Standing.RETRYING)).intersection(ids))

    # ---- waiting -----------------------------------------------------------------------------

    def _wait_for_steps(self) -> None:
        timeout = self._settings.wait_timeout
        end = None if timeout is None else time.monotonic() + timeout
        standings = self.standings
        stepping = self._count_stepping()
        enough = min(self._settings.wait_num, stepping + standings.waiting())
        while stepping:
            # Ended envs alone are nothing to go on with, as long as others run.
            useful = bool(standings.errors) or any(not one.done for one in standings.timesteps.values())
            missing = max(int(enough) - standings.waiting(), 0 if useful else 1)
            left = 0.0 if end is None else max(0.0, end - time.monotonic())
            if missing == 0 and left == 0.0:
                return
            if left > 0.0:
                self._gather(stepping, 0, min(left, _LOOK_S), steps_only=True)
            else:
                self._gather(missing, 0, _LOOK_S, steps_only=True)
            stepping = self._count_stepping()

    def _count_stepping(self) -> int:
        flying = self.pool.in_flight_count
        stepping = self.standings.count(Standing.STEPPING) if flying else 0
        return stepping if stepping == flying else stepping + self.standings.count(Standing.DROPPED)

    def _gather(self, enough: int, at_least: int, timeout: float | None, steps_only: bool = False) -> None:
        """Takes what is ready, in the way of the pool's ``recv_some``, or less: callers ask again.

        Resets envs that ended, and tries resets again that failed.
        """
        if self.standings.due:
            at_least, timeout = 0, self._until_due(timeout)
        # In one piece: an exception that came between the call and an assignment would lose the batch.
        _native.call_into(self, "_batch", self.pool.recv_some, enough, at_least, timeout, steps_only)
        if self._batch is not None:
            self._take(self._batch)
        elif not (self.standings.due or self.pool.in_flight_count):  # rather than wait for ever
            raise UsageError(f"{self!r}: nothing is in flight that could come: {self.standings.states()}")
        if self.standings.due:
            self._try_again()

    # ---- results -----------------------------------------------------------------------------

    def _take(self, batch: Any) -> None:
        self.standings.arrival = arrival = self._read(batch)
        self._batch = None
        self.standings.note_arrival()
        if arrival.given_up is not None:
            self._give_up(arrival.given_up)
        if arrival.has_ended:
            self._reset_ended()

    def _read(self, batch: Any) -> Arrival:
        """What a batch means. Changes nothing."""
        assert self._read_rows is not None
        rows = self._read_rows(batch)
        came = dict(zip(rows.ids, rows.timesteps, strict=True))
        arrival = Arrival(rows.ids, rows.places)
        for one, fault in rows.faults.items():
            del came[one]
            self._read_failure(one, fault.error(), arrival)
        # Nearly all rows are plain steps, and nothing is done for each of them.
        if not self.standings.all_stand(Standing.STEPPING, came):
            for one in [one for one in came if self.standings[one] is not Standing.STEPPING]:
                del came[one]
                if self.standings[one] is Standing.RESETTING:
                    arrival.failures[one] = 0
                else:
                    arrival.standings[one] = Standing.FAILED
        for row in rows.special:
            if (one := rows.ids[row]) in came:
                self._read_end(one, came[one], arrival)
        arrival.timesteps = came
        return arrival

    def _read_end(self, env_id: int, timestep: BaseEnvTimestep, arrival: Arrival) -> None:
        """What a step that is not like the others means for its env."""
        if tells_abnormal(timestep.info):
            standing = Standing.ENDED if self._resets_abnormal else Standing.FAILED
        elif timestep.done:
            arrival.episodes[env_id] = episodes = self.envs[env_id].episodes + 1
            if episodes >= self._settings.episode_num:
                standing = Standing.DONE
            else:
                standing = Standing.ENDED if self._settings.auto_reset else Standing.UNRESET
        else:
            return
        arrival.standings[env_id] = standing
        arrival.has_ended |= standing is Standing.ENDED

    def _read_failure(self, env_id: int, error: EnvError, arrival: Arrival) -> None:
        arrival.lost_worker |= isinstance(error, WorkerDiedError | EnvTimeoutError)
        if self.standings[env_id] is not Standing.RESETTING:
            arrival.standings[env_id] = Standing.FAILED
            if self.standings[env_id] is Standing.STEPPING:
                arrival.errors[env_id] = error
            return
        arrival.standings[env_id] = Standing.RETRYING
        failures = arrival.failures[env_id] = self.envs[env_id].failures + 1
        if failures > self._settings.max_retry:
            error.add_note(f"the reset of env {env_id} failed {failures} times, and the manager is closed")
            arrival.given_up = arrival.given_up or error
        arrival.due[env_id] = time.monotonic() + self._settings.retry_waiting_time

    def _give_up(self, error: EnvError) -> None:
        self._gives_up = True
        try:
            close_quietly(self._manager() or self)
        finally:
            self._gives_up = False
        raise error

    # ---- resets that failed ------------------------------------------------------------------

    def _until_due(self, timeout: float | None) -> float:
        """Seconds until a reset is to be tried again, or time is up. Sleeps for them where nothing is in flight."""
        left = max(0.0, min(self.standings.due.values()) - time.monotonic())
        if timeout is not None:
            left = min(left, timeout)
        if not self.pool.in_flight_count:
            time.sleep(left)  # what retry_waiting_time asks for: there is nothing to wait for but the time
        return left

    def _try_again(self) -> None:
        now = time.monotonic()
        due = sorted(one for one, when in self.standings.due.items() if when <= now)
        renew = self._settings.retry_type == "renew"
        for automatic in (False, True):
            alike = [one for one in due if self.envs[one].is_automatic is automatic]
            self._send_resets(alike, renew=renew, automatic=automatic)
