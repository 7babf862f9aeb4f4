"""The core of the env managers: where each env stands, and when a call has waited long enough.

The pool does the work: it steps and resets envs, in worker processes or in this one, and every action gets exactly one
result. Nothing here runs in the background: what became ready is looked at when the caller asks for something.

It is an object of its own inside of a manager, not a class below it: a manager looks up names that it does not know in
its envs, and Python finds attributes of such objects more slowly.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
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
from stepmill.managers.journal import Handed, News, Sending
from stepmill.managers.records import EnvRecord
from stepmill.managers.rows import Place, RowReader, tells_abnormal, with_tensors
from stepmill.managers.states import EnvState
from stepmill.pool.foreign import bearing
from stepmill.pool.python_pool import Preparation
from stepmill.uncopyable import Uncopyable

__all__ = ["ManagerCore"]

P = ParamSpec("P")
R = TypeVar("R")
# Who waits for steps looks this often what came meanwhile: an env that ended is reset beside the others, a reset that
# failed is tried again. Each row as it comes would wake the caller on a core that the workers need.
_LOOK_S = 0.01

Params = Mapping[int, Mapping[str, Any] | None]  # of resets, by env id; None: as the last time


def _mends(method: Callable[Concatenate[ManagerCore, P], R]) -> Callable[Concatenate[ManagerCore, P], R]:
    """Makes a method refuse a second call at once, and do first what an exception kept the last one from doing.

    Ctrl-C and signal handlers may raise anywhere in there: see ``journal.py``.
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
            handed = self._handed if is_inside and self._handed is not None and self._handed.call is token else None
            if is_inside:
                self._torn = True
            if handed is not None:
                handed.is_lost = True  # a handler may raise here, too, in place of an error that carries it
            self._callers.pop(token, None)
            if handed is not None and handed.error is error:
                handed.is_lost = False
            raise

    return call


class ManagerCore(Uncopyable):
    """The state of the envs of a manager, and what moves it on. ``BaseEnvManager`` is what users see of it.

    Args:
        manager: Whose core it is. It is closed when a reset fails for good; not kept alive.
        recipes: One an env.
        settings: How the envs are run.
        backend: Where: "inline" or "process".
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
        self.pool: Any = None
        self.records = [EnvRecord() for _ in recipes]
        self._forget()

    def _forget(self) -> None:
        """As before the first launch, but for what the caller asked for."""
        self.records = [one.launched() for one in self.records]
        self.states = dict.fromkeys(range(self.env_num), EnvState.VOID)
        self._halted = set(self.states)  # not in state RUN; for questions about many envs at once, and kept by `_move`
        self.ready: set[int] = set()  # can take an action
        self._places: dict[int, Place] = {}  # where the last observation of each is
        self._stepping: set[int] = set()  # an action is in flight
        self._resetting: set[int] = set()  # a reset is in flight, or to be tried again
        self._due: dict[int, float] = {}  # when a reset that failed is tried again
        self._voided: set[int] = set()  # whose results in flight come to nothing
        self._arrived: dict[int, BaseEnvTimestep] = {}  # results that no call has returned yet
        self._failed: dict[int, EnvError] = {}  # of steps, that no call has raised yet
        self._owed: set[int] = set()  # ended, and to be reset: not sent yet
        # What is under way, so that a call that was interrupted can be finished by the next one.
        self._torn = False  # a call raised something
        self._sending: Sending | None = None
        self._batch: Any = None  # that the pool gave away, as long as nobody has looked at it
        self._news: News | None = None
        self._handed: Handed | None = None

    def _move(self, ids: Iterable[int], state: EnvState) -> None:
        """Envs are in another state now."""
        for one in ids:
            self.states[one] = state
            if state is EnvState.RUN:
                self._halted.discard(one)
            else:
                self._halted.add(one)

    # ---- life --------------------------------------------------------------------------------

    @_mends
    def open(self) -> EnvSpaces:
        """Builds the envs, which are to be reset now. Returns what spaces they have."""
        if self.pool is not None:
            raise UsageError(f"{self!r} is launched already: close() it first")
        self._forget()
        self.pool = open_pool(self._recipes, self._settings, self._backend)
        try:
            self._move(self.states, EnvState.INIT)
            spaces: EnvSpaces = self.pool.apply(spaces_of, [0])[0]
            reward_shape = getattr(spaces.reward, "shape", None) or ()
            self._read_rows = RowReader(self.pool.observation, self.pool.num_players, reward_shape, self.env_num)
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
                self.pool = self._batch = self._news = self._handed = None
                self._move(self.states, EnvState.VOID)
                self.ready.clear()
                self._places.clear()  # they keep the pool's memory
                self._arrived.clear()

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
        """Raises where nothing is launched."""
        if self.pool is None:
            raise ClosedError(f"{self!r} is not launched: call launch() first")

    def check_ids(self, ids: Any) -> list[int]:
        """Env ids, from one or several, each in range and once."""
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
        """Goes on with what an exception came in between. Envs that are nowhere after that wait for a reset."""
        flying = set(self.pool.in_flight_ids)
        if self._sending is not None:
            if flying.issuperset(self._sending.ids):
                self._note_sent()
            self._sending = None
        if self._handed is not None and self._handed.is_lost:
            self._take_back(self._handed)
        if self._news is not None:
            self._note_news(self._news)
        elif self._batch is not None:
            self._take(self._batch)
        flying = set(self.pool.in_flight_ids)
        unknown = flying - self._stepping - self._resetting
        vanished = (self._stepping | self._resetting) - flying - self._due.keys()
        self._stepping = (self._stepping - vanished) | unknown
        self._resetting -= vanished
        self._voided = (self._voided & flying) | unknown
        somewhere = self._stepping | self._resetting | self.ready | self._arrived.keys() | self._failed.keys()
        somewhere |= self._owed
        lost = vanished | self._voided | (self.states.keys() - self._halted - somewhere)
        self._move(lost, EnvState.ERROR)
        self.ready -= lost
        self._send_owed()
        self._torn = False

    # ---- steps -------------------------------------------------------------------------------

    @_mends
    def step(self, actions: Mapping[int, Any]) -> dict[int, BaseEnvTimestep]:
        """Sends actions, waits as the settings say, and returns what is ready; raises what failed."""
        self.require_open()
        ids = self._check_actions(actions)
        if ids:
            batch, objects = self._read_actions(ids, list(actions.values()))
            self._sending = Sending(ids)
            self.pool.send(batch, ids, objects)
            self._note_sent()
        self._wait_for_steps()
        if self._backend == "inline" and self._resetting:  # nothing goes on beside the caller: be done with it
            self._settle_resets(self._resetting)
        came = sorted(self._arrived)
        timesteps = dict(zip(came, map(self._arrived.__getitem__, came), strict=True))
        output = self._output(timesteps)
        failed = self._failed
        error = EnvError.gather([failed[one] for one in sorted(failed)], output) if failed else None
        self._handed = Handed(self._caller, timesteps, failed, error)
        self._arrived, self._failed = {}, {}
        self.ready.update(came)
        self.ready -= self._halted
        if error is not None:
            raise error
        return output

    def _take_back(self, handed: Handed) -> None:
        """What a step was about to return, and did not, is for the next one."""
        self._arrived.update(handed.timesteps)
        self._failed.update(handed.failed)
        self.ready.difference_update(handed.timesteps)
        self._handed = None

    def _note_sent(self) -> None:
        """What was sent is in flight. To do it twice is to do it once."""
        sent = self._sending
        assert sent is not None
        self.ready.difference_update(sent.ids)
        if sent.seeds is None:
            self._stepping.update(sent.ids)
        else:
            self._resetting.update(sent.ids)
            self._move(sent.ids, EnvState.RESET)
            for one, seed in zip(sent.ids, sent.seeds, strict=True):
                self.records[one].reset_is_sent(seed)
                self._due.pop(one, None)
            self._owed.difference_update(sent.ids)
        self._sending = None

    def _read_actions(self, ids: list[int], actions: list[Any]) -> tuple[Any, dict[int, Any] | None]:
        """A batch, and by env id what it has no place for; None: the pool looks for that itself."""
        if not self._is_open:
            return stack_actions(self.pool.action, actions, self.pool.num_players), None

        def read() -> tuple[Any, dict[int, Any]]:
            batch, objects = stack_open_actions(self.pool.action, actions)
            return batch, {ids[row]: self.pool.pack_objects(parts) for row, parts in objects.items()}

        def refuse(failure: BaseException) -> NoReturn:
            if isinstance(failure, StepmillError):
                raise failure
            text = f"step: expected actions that can be copied and pickled, got {actions}: {failure}"
            raise ActionError(text) from failure

        return bearing(read, refuse)

    def _check_actions(self, actions: Any) -> list[int]:
        if not isinstance(actions, Mapping):
            raise InputError(f"step: expected a dict from env id to action, got {actions!r}")
        if actions.keys() <= self.ready:
            return list(actions)
        ids = self.check_ids(list(actions))
        wrong = [one for one in ids if one not in self.ready]
        shown = {one: self.states[one].name if one in self.ready else self._standing(one) for one in ids}
        raise InFlightError(
            f"step: the envs {wrong} cannot take an action now, expected envs of ready_obs; nothing was sent: {shown}"
        )

    def _standing(self, env_id: int) -> str:
        state = self.states[env_id]
        return "in flight" if state is EnvState.RUN else state.name

    def _output(self, values: dict[int, Any]) -> dict[int, Any]:
        if self._settings.output == "numpy":
            return values
        return {one: with_tensors(value) for one, value in values.items()}

    # ---- what is ready -----------------------------------------------------------------------

    @_mends
    def await_ready(self) -> list[int]:
        """The envs that can take an action; waits while all that live are resetting."""
        self.require_open()
        if self._backend != "inline" and (self._stepping or self._resetting):
            self._gather(self.env_num, 0, 0.0)  # what has become ready meanwhile
        while self._resetting and not (self.ready or self._arrived or self._failed):
            self._gather(1, 1, None)
        return sorted(self.ready)

    def latest(self, ids: list[int]) -> list[Any]:
        """The last observation of each, a copy: nobody else has what is handed out."""
        assert self._read_rows is not None
        return self._read_rows.pick(list(map(self._places.__getitem__, ids)))

    def ready_observations(self) -> dict[int, Any]:
        """Those of the envs that can take an action, by env id."""
        ids = self.await_ready()
        return self._output(dict(zip(ids, self.latest(ids), strict=True)))

    # ---- resets ------------------------------------------------------------------------------

    @_mends
    def reset(self, params: Params) -> None:
        """Resets these envs and waits for them. What they have in flight comes to nothing."""
        self.require_open()
        self._voided.update(self._stepping.intersection(params))
        while not params.keys().isdisjoint(self._stepping | self._resetting):
            self._gather(1, 1, None)
        for one, given in params.items():
            void = self._arrived.pop(one, None)
            if void is not None and void.done and not tells_abnormal(void.info):
                self.records[one].episodes -= 1  # nobody saw it
            self._failed.pop(one, None)
            if given is not None:
                self.records[one].params = dict(given)
        self._send_resets(list(params))
        self._settle_resets(params)

    def _send_resets(self, ids: Sequence[int], renew: bool = False, automatic: bool = False) -> None:
        """Sends resets of envs that have nothing in flight.

        Args:
            ids: Which.
            renew: They are built anew first.
            automatic: Nobody asked for them: new seeds wait for a reset that somebody does.
        """
        groups: dict[Preparation | None, list[int]] = {}
        for one in ids:
            self.records[one].is_automatic = automatic
            groups.setdefault(self.records[one].preparation(renew), []).append(one)
        for prepare, group in groups.items():
            seeds = [self.records[one].seed_for_reset(renew) for one in group]
            params = [self.records[one].params or None for one in group]
            self._sending = Sending(group, seeds)
            self.pool.send_reset(group, seeds, params, prepare=prepare)
            self._note_sent()  # nothing is changed before it is sent

    def _send_owed(self) -> None:
        """Resets envs that have ended."""
        if self._owed:
            self._send_resets(sorted(self._owed), automatic=True)

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
                self._gather(len(self._stepping), 0, min(left, _LOOK_S), steps_only=True)
            else:
                self._gather(missing, 0, _LOOK_S, steps_only=True)

    def _gather(self, enough: int, at_least: int, timeout: float | None, steps_only: bool = False) -> None:
        """Takes what is ready, as ``recv_some`` of the pool has it, or less: callers ask again.

        Sees to resets that failed, and to envs that ended.
        """
        if self._due:
            at_least, timeout = 0, self._until_due(timeout)
        # In one piece: an exception that came between the call and an assignment would lose the batch.
        _native.call_into(self, "_batch", self.pool.recv_some, enough, at_least, timeout, steps_only)
        if self._batch is not None:
            self._take(self._batch)
        elif not (self._due or self.pool.in_flight_count):  # rather than wait for ever
            raise UsageError(f"{self!r}: nothing is in flight that could come: {self.states}")
        if self._due:
            self._try_again()

    # ---- results -----------------------------------------------------------------------------

    def _take(self, batch: Any) -> None:
        self._news = self._read(batch)
        self._batch = None
        self._note_news(self._news)

    def _read(self, batch: Any) -> News:
        """What a batch means. Changes nothing."""
        assert self._read_rows is not None
        rows = self._read_rows(batch)
        came = dict(zip(rows.ids, rows.timesteps, strict=True))
        news = News(places=list(zip(rows.ids, rows.places, strict=True)))
        for one, fault in rows.faults.items():
            del came[one]
            self._read_failure(one, fault.error(), news)
        # Nearly all rows are plain steps, and nothing is done for each of them.
        news.resets = sorted(self._resetting & came.keys())
        for one in news.resets:
            del came[one]
        news.stepped.extend(came)
        for one in self._voided & came.keys():
            del came[one]
        for row in rows.special:
            if (one := rows.ids[row]) in came:
                self._read_end(one, came[one], news)
        news.arrived = came
        return news

    def _note_news(self, news: News) -> None:
        """Makes the news known. To do it twice is to do it once: it may have been interrupted."""
        self._batch = None
        self._places.update(news.places)
        for one in news.resets:
            self._end_reset(one)
        self._stepping.difference_update(news.stepped)
        self._voided.difference_update(news.stepped)
        for one, state in news.states.items():
            self._move([one], state)
        for one, episodes in news.episodes.items():
            self.records[one].episodes = episodes
        for one, failures in news.failures.items():
            self.records[one].reset_failed(failures)
        if news.lost_worker:
            for record in self.records:
                record.is_told = False  # others were lost with it, and are built anew
        self._due.update(news.due)
        self._failed.update(news.failed)
        self._arrived.update(news.arrived)
        self._owed.update(news.owed)
        self._news = None
        if news.given_up is not None:
            self._give_up(news.given_up)
        self._send_owed()

    def _end_reset(self, env_id: int) -> None:
        self._move([env_id], EnvState.RUN)
        if env_id not in self._arrived:  # the end before it is for `step` to return first
            self.ready.add(env_id)
        self._resetting.discard(env_id)
        self.records[env_id].failures = 0

    def _read_end(self, env_id: int, timestep: BaseEnvTimestep, news: News) -> None:
        """What a step that is not like the others means for its env."""
        if tells_abnormal(timestep.info):
            news.states[env_id] = EnvState.ERROR
            if self._resets_abnormal:
                news.owed.append(env_id)
            return
        if not timestep.done:
            return
        news.episodes[env_id] = self.records[env_id].episodes + 1
        if news.episodes[env_id] >= self._settings.episode_num:
            news.states[env_id] = EnvState.DONE
        elif not self._settings.auto_reset:
            news.states[env_id] = EnvState.NEED_RESET
        else:
            news.owed.append(env_id)

    def _read_failure(self, env_id: int, error: EnvError, news: News) -> None:
        news.lost_worker |= isinstance(error, WorkerDiedError | EnvTimeoutError)
        if env_id in self._stepping:
            news.stepped.append(env_id)
            news.states[env_id] = EnvState.ERROR
            if env_id not in self._voided:
                news.failed[env_id] = error
            return
        failures = news.failures[env_id] = self.records[env_id].failures + 1
        if failures > self._settings.max_retry:
            error.add_note(f"the reset of env {env_id} failed {failures} times, and the manager is closed")
            news.given_up = news.given_up or error
        news.due[env_id] = time.monotonic() + self._settings.retry_waiting_time

    def _give_up(self, error: EnvError) -> None:
        self._gives_up = True
        try:
            close_quietly(self._manager() or self)
        finally:
            self._gives_up = False
        raise error

    # ---- resets that failed ------------------------------------------------------------------

    def _until_due(self, timeout: float | None) -> float:
        """Seconds until a reset is to be tried again, or the time is over. Passes them where nothing is in flight."""
        left = max(0.0, min(self._due.values()) - time.monotonic())
        if timeout is not None:
            left = min(left, timeout)
        if not self.pool.in_flight_count:
            time.sleep(left)  # what retry_waiting_time asks for: there is nothing to wait for but the time
        return left

    def _try_again(self) -> None:
        now = time.monotonic()
        due = sorted(one for one, when in self._due.items() if when <= now)
        renew = self._settings.retry_type == "renew"
        for automatic in (False, True):
            alike = [one for one in due if self.records[one].is_automatic is automatic]
            self._send_resets(alike, renew, automatic)
