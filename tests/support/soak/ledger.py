"""The books of one pool: what was sent to each env, and whether what came back can be right.

Every action is numbered. A good row must show the number of the very action that was sent to that env, or, where the
action was discarded by an autoreset, a reset; an abnormal row must have a cause that the soak itself made.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stepmill.errors import EnvError
from support.soak.env import BAD, DEADLY, HEAD, Order, bulk_of, tells

_FRESH, _LIVE, _ENDED = "never reset", "in an episode", "ended"


class Violation(Exception):
    """Something came back that must not, or did not come back."""


class Harm:
    """What was done to the processes of one pool. Noted before it is done, by whichever thread does it."""

    def __init__(self, flaw: Path) -> None:
        self._flaw = flaw
        self._lock = threading.Lock()
        self._count = 0
        self.pids: set[int] = set()
        self.wide = 0  # of it, what reached every process of the pool

    def note(self, pids: Sequence[int], *, wide: bool = False) -> None:
        with self._lock:
            self._count += 1
            self.wide += wide
            self.pids.update(pids)

    @property
    def count(self) -> int:
        """How many times, constructors that failed among them."""
        return self._count + self.failed_builds

    @property
    def failed_builds(self) -> int:
        return self._flaw.stat().st_size if self._flaw.exists() else 0


@dataclass(frozen=True)
class _Sent:
    serial: int  # of a reset: what it shows is its negative
    order: Order | None  # None: a reset
    recalled: _Seat | None = None  # a restore: where the env was when it was saved


@dataclass
class _Seat:
    """One env, as far as the caller can know it."""

    flying: _Sent | None = None
    phase: str = _FRESH
    elapsed: int = 0
    failures: int | None = 0  # in a row; None: results that would tell were dropped
    last: np.ndarray | None = None  # the last good observation
    last_is_known: bool = True
    pid: int | None = None  # the process that wrote its last row; None after an abnormal one
    vague: int = 0  # abnormal rows whose process is not known
    wide: int = 0  # abnormal rows put down to what reached every process of the pool
    fail_reset: bool = False  # its next reset raises, if it is still the same env
    asked: int = 1  # the serial number of a reset that failed: the next one may be given its options again


@dataclass
class Counts:
    """Of one pool, or of several."""

    actions: int = 0
    results: int = 0
    resets: int = 0  # of the results
    abnormal: int = 0
    dropped: int = 0  # in flight when reset() of all, or close(), made them void
    raised: int = 0  # errors that recv, step and reset raised, each with a whole batch

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(one + another for one, another in zip(astuple(self), astuple(other), strict=True)))


class Ledger:
    """One for each pool. Raises ``Violation`` as soon as something does not add up."""

    def __init__(self, num_envs: int, autoreset: str, on_error: str, max_restarts: int, harm: Harm) -> None:
        self._autoreset = autoreset
        self._on_error = on_error
        self._max_restarts = max_restarts
        self._harm = harm
        self._seats = [_Seat() for _ in range(num_envs)]
        self._next_serial = 1
        self.counts = Counts()
        self.orders: Counter[Order] = Counter()
        self._errors: Sequence[EnvError] = ()  # of the batch that is looked at

    # ---- what may be sent ----------------------------------------------------------------------------

    @property
    def idle(self) -> list[int]:
        """Envs with nothing under way."""
        return [i for i, seat in enumerate(self._seats) if seat.flying is None]

    @property
    def in_flight(self) -> int:
        return sum(seat.flying is not None for seat in self._seats)

    @property
    def unreset(self) -> list[int]:
        """Idle envs whose episode is over."""
        return [i for i in self.idle if self._seats[i].phase == _ENDED]

    @property
    def pids(self) -> set[int]:
        """Processes that are known to be, or to have been, this pool's."""
        return {seat.pid for seat in self._seats if seat.pid is not None}

    def is_live(self, env_id: int) -> bool:
        """Whether an action will reach the env, if nothing happens to its process."""
        seat = self._seats[env_id]
        return seat.flying is None and seat.phase == _LIVE and seat.pid is not None

    def pid_of(self, env_id: int) -> int:
        """The process of a live env."""
        return self._seats[env_id].pid or -1

    # ---- sending -------------------------------------------------------------------------------------

    def actions(self, env_ids: Sequence[int], orders: Sequence[Order]) -> np.ndarray:
        """The actions that carry the orders; to be followed by ``sent`` once they were taken."""
        serials = range(self._next_serial, self._next_serial + len(env_ids))
        self._next_serial += len(env_ids)
        for env_id, order in zip(env_ids, orders, strict=True):
            if order in DEADLY:
                self._harm.note([self.pid_of(env_id)])
        return np.array(list(zip(serials, orders, strict=True)), np.int64)

    def sent(self, env_ids: Sequence[int], actions: np.ndarray) -> None:
        for env_id, (serial, order) in zip(env_ids, actions.tolist(), strict=True):
            self._fly(env_id, _Sent(serial, Order(order)))
            self.orders[Order(order)] += 1

    def next_reset(self) -> int:
        """A serial number for a reset."""
        self._next_serial += 1
        return self._next_serial - 1

    def sent_reset(self, env_ids: Sequence[int], serial: int) -> None:
        for env_id in env_ids:
            self._fly(env_id, _Sent(serial, None))

    def snapshot(self, env_id: int) -> _Seat:
        """Where an env is, for the state that is saved of it."""
        return replace(self._seats[env_id])

    def sent_restore(self, env_ids: Sequence[int], snapshots: Sequence[_Seat]) -> None:
        for env_id, snapshot in zip(env_ids, snapshots, strict=True):
            self._fly(env_id, _Sent(0, None, snapshot))

    def refused_restore(self, env_ids: Sequence[int]) -> None:
        """It raised before anything was given to the envs."""
        for env_id in env_ids:
            self._seats[env_id].flying = None
            self.counts.actions -= 1

    def drop(self) -> None:
        """What is in flight will never be seen."""
        for seat in self._seats:
            if seat.flying is not None:
                seat.fail_reset = seat.fail_reset or seat.flying.order is Order.END_BADLY
                seat.flying, seat.failures, seat.last_is_known, seat.pid = None, None, False, None
                self.counts.dropped += 1

    def _fly(self, env_id: int, sent: _Sent) -> None:
        seat = self._seats[env_id]
        self._check(seat.flying is None, env_id, seat, "the soak sent to an env in flight: a mistake of its own")
        seat.flying = sent
        self.counts.actions += 1

    # ---- receiving -----------------------------------------------------------------------------------

    def received(self, result: Any, error: EnvError | None) -> None:
        """Checks a batch: a result of ``step`` and ``recv``, or one of ``reset``."""
        observation, *rest, info = result
        ids = info["env_id"].tolist()
        if len(set(ids)) != len(ids):
            raise Violation(f"an env twice in one batch: {ids}")
        abnormal = info["abnormal"].tolist() if "abnormal" in info else [False] * len(ids)
        self._errors = error.errors if error is not None else ()
        self._check_error(error, {one for one, bad in zip(ids, abnormal, strict=True) if bad})
        for row, env_id in enumerate(ids):
            seat = self._seats[env_id]
            if seat.flying is None:
                raise Violation(f"env {env_id} has a row, and nothing was sent to it: {observation[row][:HEAD]}")
            # (reward, terminated, truncated) of a reset's rows are not shown.
            shown = tuple(column[row].item() for column in rest) if rest else None
            if abnormal[row]:
                self._take_failure(env_id, seat, observation[row], shown)
            elif seat.flying.recalled is not None:
                self._take_recalled(env_id, seat, seat.flying.recalled, observation[row], info["elapsed_step"][row])
            else:
                self._take_good(env_id, seat, observation[row], shown, info, row)
            seat.flying = None
            self.counts.results += 1
            self.counts.abnormal += abnormal[row]
        self._check_raised(error, [self._seats[one].failures for one, bad in zip(ids, abnormal, strict=True) if bad])
        self._errors = ()

    def _take_good(self, env_id: int, seat: _Seat, row: np.ndarray, shown: Any, info: Any, at: int) -> None:
        sent = seat.flying
        assert sent is not None
        reset = sent.order is None or seat.phase != _LIVE
        ends = not reset and sent.order in (Order.END, Order.END_BADLY)
        begins = reset or (ends and self._autoreset == "same_step")
        fails = sent.order in BAD or (begins and sent.order is Order.END_BADLY)
        self._check(reset or not fails, env_id, seat, "a good row of an env that was told to fail")
        serial = -sent.serial if sent.order is None else -1 if begins else sent.serial
        if reset and sent.order is not None and row[0] == -seat.asked:
            serial = -seat.asked
        elapsed = 0 if begins else seat.elapsed + 1
        self._check_shown(env_id, seat, row, serial, elapsed)
        self._check(info["elapsed_step"][at] == elapsed, env_id, seat, f"elapsed_step {info['elapsed_step'][at]}")
        if shown is not None:
            expected = (0.0, False, False) if reset else (float(sent.serial), ends, False)
            self._check(shown == expected, env_id, seat, f"(reward, terminated, truncated) {shown}, not {expected}")
        if ends and begins:
            self._check_shown(env_id, seat, info["final_obs"][at], sent.serial, seat.elapsed + 1)
        if not reset:
            self._check_info(env_id, seat, sent, info["final_info"] if begins else info, at)
            seat.failures = 0
        seat.phase = _ENDED if ends and not begins else _LIVE
        seat.elapsed = elapsed
        seat.last, seat.last_is_known = row.copy(), True
        seat.pid = int(row[2])
        seat.fail_reset = sent.order is Order.END_BADLY and ends
        seat.asked = 1
        self.counts.resets += reset

    def _take_recalled(self, env_id: int, seat: _Seat, then: _Seat, row: np.ndarray, elapsed: int) -> None:
        """The observation of the saved env, also where the process is gone that showed it."""
        self._check(np.array_equal(row, then.last), env_id, seat, f"a restored env shows {row[:HEAD]}")
        self._check(elapsed == then.elapsed, env_id, seat, f"a restored env has elapsed_step {elapsed}")
        seat.phase, seat.elapsed, seat.failures = then.phase, then.elapsed, then.failures
        seat.last, seat.last_is_known, seat.fail_reset = row.copy(), True, then.fail_reset

    def _take_failure(self, env_id: int, seat: _Seat, row: np.ndarray, shown: Any) -> None:
        sent = seat.flying
        assert sent is not None
        stepped = sent.order is not None and seat.phase == _LIVE
        if shown is not None and shown != (0.0, False, True):
            # A good step that ended its episode, and then the reset failed: reward and end stand.
            ended = stepped and sent.order in (Order.END, Order.END_BADLY) and self._autoreset == "same_step"
            self._check(
                ended and shown == (float(sent.serial), True, False),
                env_id,
                seat,
                f"an abnormal row with (reward, terminated, truncated) {shown}",
            )
            self._check_shown(env_id, seat, row, sent.serial, seat.elapsed + 1)
            seat.failures = 0
            seat.last = row.copy()
        elif self._on_error == "raise":
            self._check(not row.any(), env_id, seat, f"an abnormal row without zeros: {row[:HEAD]}")
        else:
            self._check_kept(env_id, seat, row, sent, stepped)
        self._check_cause(env_id, seat, sent, stepped)
        seat.phase = _ENDED
        seat.failures = None if seat.failures is None else seat.failures + 1
        seat.pid = None
        seat.fail_reset = False
        if sent.order is None and sent.recalled is None:
            seat.asked = sent.serial

    def _check_shown(self, env_id: int, seat: _Seat, row: np.ndarray, serial: int, steps: int) -> None:
        head = row[:HEAD].tolist()
        good = (head[0], head[1], head[3]) == (serial, env_id, steps) and (row[HEAD:] == serial).all()
        expected = f"serial {serial}, env {env_id}, step {steps}"
        self._check(good, env_id, seat, f"expected {expected}, got {head} and {np.unique(row[HEAD:])[:5]}")

    def _check_kept(self, env_id: int, seat: _Seat, row: np.ndarray, sent: _Sent, stepped: bool) -> None:
        """The last good observation. A process that died writing this very row may have kept that one already."""
        if not seat.last_is_known:
            return
        if np.array_equal(row, np.zeros_like(row) if seat.last is None else seat.last):
            return
        own = sent.serial if stepped else -sent.serial if sent.order is None else -1
        whole = row[0] in (own, -1) and row[1] == env_id and bool((row[HEAD:] == row[0]).all())
        self._check(whole, env_id, seat, f"an abnormal row shows {row[:HEAD]}, not the last good observation")
        seat.last = row.copy()

    def _check_info(self, env_id: int, seat: _Seat, sent: _Sent, info: Any, at: int) -> None:
        got = int(info["serial"][at]) if "serial" in info and info["_serial"][at] else None
        expected = sent.serial if tells(sent.serial) else None
        self._check(got == expected, env_id, seat, f"info['serial'] is {got}, not {expected}")
        bulk = info["bulk"][at] if "bulk" in info and info["_bulk"][at] else None
        wanted = bulk_of(sent.serial) if sent.order is Order.BULK else None
        self._check(bulk == wanted, env_id, seat, f"info['bulk'] has {len(bulk or b'')} bytes, and not those it should")

    # ---- failures ------------------------------------------------------------------------------------

    def _check_cause(self, env_id: int, seat: _Seat, sent: _Sent, stepped: bool) -> None:
        """Whether the soak did something that explains an abnormal row."""
        if stepped and sent.order in BAD:
            return
        if seat.fail_reset and not stepped:
            return
        if stepped and sent.order is Order.END_BADLY and self._autoreset == "same_step":
            return
        if seat.pid in self._harm.pids:
            return
        # No event fails an env twice, so there are as many such rows at most as there were events.
        if seat.wide < self._harm.wide:
            seat.wide += 1
            return
        self._check(seat.pid is None, env_id, seat, f"an abnormal row, and nothing was done to process {seat.pid}")
        # Its process never showed a row, so which one that was is not known.
        seat.vague += 1
        self._check(seat.vague <= self._harm.count, env_id, seat, "more abnormal rows than anything was done")

    def _check_error(self, error: EnvError | None, abnormal: set[int]) -> None:
        if error is None:
            return
        self.counts.raised += 1
        failed = [one.env_id for one in error.errors]
        if set(failed) != abnormal or len(failed) != len(abnormal):
            raise Violation(f"errors for envs {failed}, abnormal rows of {sorted(abnormal)}")
        for one in error.errors:
            self.check_named(one)

    def check_named(self, error: EnvError) -> None:
        """An error that names a process names one that something was done to."""
        named = re.search(r"worker process \(pid (\d+)\)", str(error))
        if named and int(named[1]) not in self._harm.pids and not self._harm.wide and not self._harm.failed_builds:
            raise Violation(f"nothing was done to that process: {error}")

    def _check_raised(self, error: EnvError | None, failures: Sequence[int | None]) -> None:
        if None in failures:
            return
        limit = 1 if self._on_error == "raise" else self._max_restarts
        should = any(count is not None and count >= limit for count in failures)
        if should != (error is not None):
            raise Violation(f"failures in a row {failures}, limit {limit}: {'no error' if should else repr(error)}")

    # ---- at the end ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Every action has had its result, or was made void by the caller."""
        counts = self.counts
        if counts.actions != counts.results + counts.dropped or self.in_flight:
            raise Violation(f"{counts.actions} actions, {counts.results} results, {counts.dropped} dropped")

    def show_in_flight(self) -> str:
        flying = ((i, seat.flying) for i, seat in enumerate(self._seats) if seat.flying is not None)
        return ", ".join(f"env {i}: {sent.order.name if sent.order is not None else 'reset'}" for i, sent in flying)

    def _check(self, good: bool, env_id: int, seat: _Seat, message: str) -> None:
        if not good:
            told = next((f"\n  {one}" for one in self._errors if one.env_id == env_id), "")
            shown = replace(seat, last=None if seat.last is None else seat.last[:HEAD])
            raise Violation(f"env {env_id}: {message}\n  {shown}{told}")
